"""The model file: reader, writer and tables of the FlatBuffers schema."""
