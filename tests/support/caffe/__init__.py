"""Caffe networks, scalar definitions of their layers, and recorded results of OpenCV."""
