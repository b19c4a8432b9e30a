"""Layout: the order of axes in memory, and padding, for convolutions, attention and the classes of a loss.

In the order in which they run: ``channels_last.py`` moves the channels of images; it asks ``pointwise_first.py`` which
convolutions do not gain by that, ``wide_convolutions.py`` gives others full runs of channels, and ``regrouped.py``
carries channel shuffles and the like. After ``simplify``, ``transposes.py`` (or ``image_transposes.py``) drops pairs of
transposes that are left, ``attention_transposes.py`` moves those of heads next to attention, and ``attention_views.py``
drops them there. ``turned_norms.py`` and ``turned_readers.py`` have what norms and sums need for that. At the end
``pad_classes.py``, ``pad_widths.py`` and ``pad_columns.py`` pad what libraries read. ``axis_order.py`` has what
``channels_last.py`` and ``transposes.py`` share.
Values keep their bits, or the file says why not.
"""
