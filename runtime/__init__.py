"""runtime floor"""

if __name__ != "dslc.runtime":
    raise ImportError("import this package as dslc.runtime, never by its folder's name")
