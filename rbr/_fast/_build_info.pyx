"""How the compiled kernels were built: setup.py gives every kernel the same directives as this module."""


def _checks_bounds():
    """Whether an index past the end of a view raises here. The memory behind it is valid either way."""
    cdef unsigned char[::1] view = bytearray(2)
    cdef Py_ssize_t beyond = 1
    view = view[:beyond]
    try:
        return view[beyond] != 0
    except IndexError:
        return True


DEBUG = _checks_bounds()
