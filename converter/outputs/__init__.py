"""Results of a model on an image: their interpretation as classes, boxes, masks and points, and a picture of them."""
