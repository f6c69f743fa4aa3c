"""The ``.tpum`` file: ``write_model`` and ``read_model``.

    header     128 bytes: magic, format version, sizes and offsets, digest of all that follows     file_header.py
    weights    constants, 64-byte aligned, addressed by 64-bit offsets, each content once
    metadata   FlatBuffers, identifier TPUM: graph, ports, notes, preprocessing                     tpum.fbs

The same model gives the same bytes on every machine: nothing in the file depends on the time, a folder, a user or the
order of a hash table. Writing is ``file_encoder`` then ``file_writer``, reading ``file_reader`` then ``file_decoder``.
"""

from tpuconvert.schema.file.file_header import ALIGNMENT, FORMAT_VERSION, HEADER_SIZE, MAGIC
from tpuconvert.schema.file.file_model import FileModel, Json, Note
from tpuconvert.schema.file.file_reader import read_model
from tpuconvert.schema.file.file_writer import write_model

__all__ = [
    "ALIGNMENT",
    "FORMAT_VERSION",
    "HEADER_SIZE",
    "MAGIC",
    "FileModel",
    "Json",
    "Note",
    "read_model",
    "write_model",
]
