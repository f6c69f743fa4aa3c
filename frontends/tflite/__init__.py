"""tflite package."""
