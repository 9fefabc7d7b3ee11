"""Jobs: the configurations of training engines, read and written."""
