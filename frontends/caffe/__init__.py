"""caffe package."""
