"""compiler floor"""

if __name__ != "dslc.compiler":
    raise ImportError("import this package as dslc.compiler, never by its folder's name")
