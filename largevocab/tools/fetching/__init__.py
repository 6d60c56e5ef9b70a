"""Downloads, archives and checksums of public data."""
