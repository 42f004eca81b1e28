"""Reads and writes safetensors files, by the format's public description alone or with its own library.

plain_safetensors.py plain|library read FILE          prints what the file holds
plain_safetensors.py plain|library write FILE         writes one tensor of each dtype, an empty one and a scalar
plain_safetensors.py plain|library read-model DIR     follows DIR/model.safetensors.index.json
plain_safetensors.py library probe                    fails where the library cannot be used

A tensor is printed as "name dtype extent,extent hexadecimal bytes".
"""
import ctypes
import json
import struct
import sys

WIDTHS = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4,
          "U64": 8, "I64": 8, "F64": 8}
LIBRARY_NAMES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16",
                 "BF16": "bfloat16", "U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64",
                 "I64": "int64", "F64": "float64"}


def count(shape):
    product = 1
    for extent in shape:
        product *= extent
    return product


def without_duplicates(pairs):
    assert len(dict(pairs)) == len(pairs), "a key is given twice"
    return dict(pairs)


def plain_read(path):
    with open(path, "rb") as file:
        everything = file.read()
    (length,) = struct.unpack("<Q", everything[:8])
    text = everything[8:8 + length]
    assert length <= 100_000_000 and len(text) == length and text[:1] == b"{"
    header = json.loads(text.decode("utf-8").rstrip(" "), object_pairs_hook=without_duplicates)
    data = everything[8 + length:]
    metadata = header.pop("__metadata__", {})
    tensors, covered = [], 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        assert begin == covered and end - begin == count(entry["shape"]) * WIDTHS[entry["dtype"]], name
        tensors.append((name, entry["dtype"], entry["shape"], data[begin:end]))
        covered = end
    assert covered == len(data)
    return tensors, metadata


def plain_write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, dtype, shape, values in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode("utf-8")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def library_read(path):
    import safetensors
    with open(path, "rb") as file:
        tensors = [(name, tensor["dtype"], tensor["shape"], bytes(tensor["data"]))
                   for name, tensor in safetensors.deserialize(file.read())]
    with safetensors.safe_open(path, framework="np") as file:
        return tensors, file.metadata() or {}


def library_write(path, tensors, metadata):
    import safetensors
    described, kept = {}, []
    for name, dtype, shape, values in tensors:
        if hasattr(safetensors, "TensorSpec"):
            memory = ctypes.create_string_buffer(values, max(len(values), 1))
            kept.append(memory)
            described[name] = safetensors.TensorSpec(dtype=LIBRARY_NAMES[dtype], shape=shape,
                                                     data_ptr=ctypes.addressof(memory), data_len=len(values))
        else:
            described[name] = {"dtype": LIBRARY_NAMES[dtype], "shape": shape, "data": values}
    safetensors.serialize_file(described, path, metadata)


def show(tensors):
    for name, dtype, shape, values in sorted(tensors):
        print(name, dtype, ",".join(map(str, shape)) or "-", values.hex() or "-")


def samples():
    for dtype, width in WIDTHS.items():
        yield "t." + dtype, dtype, [2, 3], bytes(i % 2 if dtype == "BOOL" else i * 37 % 256 for i in range(6 * width))
    yield "scalar", "BF16", [], b"\x80\x3f"
    yield "empty", "F32", [0, 8], b""


def main(by, action, path=None):
    read, write = (plain_read, plain_write) if by == "plain" else (library_read, library_write)
    if action == "probe":
        try:
            import numpy  # noqa: F401
            import safetensors  # noqa: F401
        except ImportError as missing:
            sys.exit(str(missing))
    elif action == "write":
        write(path, list(samples()), {"made": "by python"})
        show(samples())
    elif action == "read":
        tensors, metadata = read(path)
        show(tensors)
        for key, value in sorted(metadata.items()):
            print(f"{key}={value}")
    elif action == "read-model":
        with open(f"{path}/model.safetensors.index.json", encoding="utf-8") as file:
            index = json.load(file)
        files = {name: read(f"{path}/{name}")[0] for name in set(index["weight_map"].values())}
        tensors = [tensor for name in files for tensor in files[name]]
        assert {tensor[0]: name for name in files for tensor in files[name]} == index["weight_map"]
        assert index["metadata"]["total_size"] == sum(len(tensor[3]) for tensor in tensors)
        show(tensors)


main(*sys.argv[1:])
