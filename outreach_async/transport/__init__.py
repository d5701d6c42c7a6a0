"""Where bytes leave the process: the seam (`wire`) and one small adapter a library."""
