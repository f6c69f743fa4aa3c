"""Reader of TFLite files."""
