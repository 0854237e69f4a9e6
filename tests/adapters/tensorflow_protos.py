"""TensorFlow's own classes of the messages that it records, without the seconds that importing TensorFlow takes."""

import contextlib
import gzip
import importlib
import importlib.util
import sys
import types


def tensorflow_classes(*names):
    """The first of these modules that TensorFlow has, imported below a stand-in for ``tensorflow``."""
    alone = "tensorflow" not in sys.modules
    if alone:
        stand_in = types.ModuleType("tensorflow")
        stand_in.__path__ = list(importlib.util.find_spec("tensorflow").submodule_search_locations)
        sys.modules["tensorflow"] = stand_in
    try:
        for name in names:
            with contextlib.suppress(ImportError):
                return importlib.import_module(name)
    finally:
        if alone:
            for name in [name for name in sys.modules if name.partition(".")[0] == "tensorflow"]:
                del sys.modules[name]
    raise ImportError(f"TensorFlow has none of {names}")


config_pb2 = tensorflow_classes("tensorflow.core.protobuf.config_pb2")
xplane_pb2 = tensorflow_classes("tensorflow.tsl.profiler.protobuf.xplane_pb2", "tsl.profiler.protobuf.xplane_pb2")


def events_of(path):
    """Of a recording of `tf.profiler`, in order, each event's begin and end (s), name, and what it says."""
    found = []
    for plane in xplane_pb2.XSpace.FromString(gzip.decompress(path.read_bytes())).planes:
        names = {key: value.name for key, value in plane.stat_metadata.items()}
        for began, one in [(line.timestamp_ns / 1e9, one) for line in plane.lines for one in line.events]:
            begin, name = began + one.offset_ps / 1e12, plane.event_metadata[one.metadata_id].name
            told = {names[s.metadata_id]: names.get(s.ref_value) or s.str_value or s.int64_value for s in one.stats}
            found.append((begin, begin + one.duration_ps / 1e12, name, told))
    return sorted(found, key=lambda one: one[0])


def edited(source, target, edit):
    """A run's recordings, each as ``edit`` leaves its planes: one by one, with the names of events and stats."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        space = xplane_pb2.XSpace.FromString(gzip.decompress(path.read_bytes()))
        for plane in space.planes:
            kinds = {key: value.name for key, value in plane.event_metadata.items()}
            edit(plane, kinds, {key: value.name for key, value in plane.stat_metadata.items()})
        (target / path.name.removesuffix(".gz")).write_bytes(space.SerializeToString())
    return target


def renamed(source, target, before, after):
    """A run's recordings with other names of events."""

    def rename(plane, *_):
        for event in plane.event_metadata.values():
            event.name = event.name.replace(before, after)

    return edited(source, target, rename)
