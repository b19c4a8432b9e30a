"""dsl floor"""

if __name__ != "dslc.dsl":
    raise ImportError("import this package as dslc.dsl, never by its folder's name")
