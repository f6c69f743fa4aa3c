"""Reader of Caffe files."""
