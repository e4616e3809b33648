"""Images on disk: folders, .npz archives, CIFAR-10's binary files, LEAF's FEMNIST; and dealing
them out.
"""

import json
import os
import pickle
import shutil

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from persfl.errors import InputError
from persfl.sources import (
    clustered_images,
    dirichlet_images,
    read_cifar10,
    read_femnist,
    read_image_folder,
    read_npz,
)


def put(root, device, kind, name, pixels):
    folder = root / device / kind
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / name)


def test_a_folder_of_images(tmp_path):
    rng = np.random.default_rng(0)
    red = rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    put(tmp_path, "b", "dog", "x.png", red)
    put(tmp_path, "a", "cat", "2.png", red[::-1])
    put(tmp_path, "a", "cat", "1.png", red)
    put(tmp_path, "a", "ape", "1.PNG", red)
    (tmp_path / "a" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    found = read_image_folder(tmp_path)
    assert found.devices.ids == ["a", "b"]
    assert found.classes == ("ape", "cat", "dog")
    assert found.shape == (3, 4, 6)
    assert found.devices[0].y.tolist() == [0.0, 1.0, 1.0]
    np.testing.assert_array_equal(
        found.devices[0].X[1].reshape(3, 4, 6), np.moveaxis(red / 255.0, 2, 0)
    )
    np.testing.assert_array_equal(
        found.devices[0].X[2].reshape(3, 4, 6), np.moveaxis(red[::-1] / 255.0, 2, 0)
    )
    assert read_image_folder(tmp_path, size=(2, 5), grey=True).shape == (1, 5, 2)


def test_what_is_wrong_with_a_folder(tmp_path):
    with pytest.raises(
        InputError, match="is not a folder. Images lie in FOLDER/DEVICE/CLASS/FILE"
    ):
        read_image_folder(tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no folders of classes"):
        read_image_folder(tmp_path)
    grey = np.zeros((4, 4), dtype=np.uint8)
    put(tmp_path, "a", "cat", "1.png", grey)
    (tmp_path / "b" / "cat").mkdir(parents=True)
    with pytest.raises(InputError, match="device 'b' has no images"):
        read_image_folder(tmp_path)
    put(tmp_path, "b", "cat", "1.png", np.zeros((5, 4, 3), dtype=np.uint8))
    with pytest.raises(
        InputError,
        match=(
            r"4 x 5 pixels with 3 channels, where the first image is 4 x 4 pixels with 1"
            r" channel.*size="
        ),
    ):
        read_image_folder(tmp_path)
    (tmp_path / "b" / "cat" / "1.png").write_bytes(b"not an image")
    with pytest.raises(
        InputError,
        match=r"1.png' cannot be read as an image \(UnidentifiedImageError\)",
    ):
        read_image_folder(tmp_path)


def test_a_small_file_of_many_pixels_is_refused_unread(tmp_path):
    (tmp_path / "a" / "0").mkdir(parents=True)
    path = tmp_path / "a" / "0" / "x.png"
    Image.new("1", (5_000, 5_000)).save(path)
    assert path.stat().st_size < 5_000
    with pytest.raises(InputError, match="would be 5000 x 5000 pixels"):
        read_image_folder(tmp_path)
    assert read_image_folder(tmp_path, size=(8, 8)).shape == (1, 8, 8)


def test_archives(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    np.savez(
        tmp_path / "a.npz",
        X=pixels,
        y=np.array([3, 7, 3, 7, 7, 3]),
        device=np.array(["q", "p", "q", "p", "q", "p"]),
    )
    found = read_npz(tmp_path / "a.npz", channels_last=True)
    assert (found.shape, found.classes, found.devices.ids) == (
        (3, 4, 5),
        (3, 7),
        ["p", "q"],
    )
    np.testing.assert_array_equal(
        found.devices[1].X[1].reshape(3, 4, 5), np.moveaxis(pixels[2] / 255.0, 2, 0)
    )
    assert found.devices[1].y.tolist() == [0.0, 0.0, 1.0]
    np.savez(
        tmp_path / "b.npz",
        rows=np.array([[1, 300], [2, 4]]),
        value=np.array([0.5, 1.5]),
        who=np.array([1, 1]),
    )
    table = read_npz(tmp_path / "b.npz", X="rows", y="value", device="who")
    assert (table.shape, table.classes) == ((2,), ())
    # a table of whole numbers is not an image
    assert table.devices[0].X.tolist() == [[1.0, 300.0], [2.0, 4.0]]


def test_what_is_wrong_with_an_archive(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        read_npz(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 3)), y=np.zeros(2))
    with pytest.raises(InputError, match="has no array 'device'. Its arrays: 'X', 'y'"):
        read_npz(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=np.zeros((2, 3)), y=np.zeros(3), device=np.zeros(2))
    with pytest.raises(InputError, match=r"X must be \(rows, ...\)"):
        read_npz(tmp_path / "b.npz")
    np.savez(
        tmp_path / "c.npz",
        X=np.array([{"code": "runs"}], dtype=object),
        y=np.zeros(1),
        device=np.zeros(1),
    )
    with pytest.raises(
        InputError, match="cannot be read as a .npz archive of plain arrays"
    ):
        read_npz(tmp_path / "c.npz")
    np.savez(
        tmp_path / "d.npz", X=np.array([[np.nan]]), y=np.zeros(1), device=np.zeros(1)
    )
    with pytest.raises(InputError, match="NaN|finite|missing"):
        read_npz(tmp_path / "d.npz")


def test_cifar10_in_its_binary_version(tmp_path):
    rng = np.random.default_rng(0)
    records = np.column_stack(
        [rng.integers(0, 10, 40), rng.integers(0, 256, (40, 3072))]
    ).astype(np.uint8)
    (tmp_path / "data_batch_1.bin").write_bytes(records[:30].tobytes())
    (tmp_path / "test_batch.bin").write_bytes(records[30:].tobytes())
    images, labels = read_cifar10(tmp_path)
    assert images.shape == (40, 3, 32, 32)
    assert labels.tolist() == records[:, 0].tolist()
    np.testing.assert_allclose(images[31].ravel(), records[31, 1:] / 255.0, atol=1e-7)
    world = clustered_images(
        images, labels, 4, clusters=4, rows=5, held=3, training=25, seed=0
    )
    assert world.training.features == 3072
    (tmp_path / "data_batch_1.bin").write_bytes(b"\x0b" * 3073)
    with pytest.raises(InputError, match="is not a file of CIFAR-10's binary version"):
        read_cifar10(tmp_path)


def test_the_pickled_cifar10_is_refused(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"data": 1}))
    with pytest.raises(
        InputError, match="the pickled version, which could run anything"
    ):
        read_cifar10(tmp_path)
    with pytest.raises(InputError, match="has no data_batch_"):
        read_cifar10(tmp_path / "nowhere")


def test_femnist_as_leaf_writes_it(tmp_path):
    rng = np.random.default_rng(0)
    data = {
        name: {"x": rng.random((k, 784)).tolist(), "y": list(range(k))}
        for name, k in (("w2", 3), ("w1", 2), ("w0", 0))
    }
    (tmp_path / "all_0.json").write_text(
        json.dumps({"users": list(data), "num_samples": [3, 2, 0], "user_data": data})
    )
    found = read_femnist(tmp_path)
    assert (found.devices.ids, found.shape, len(found.classes)) == (
        ["w1", "w2"],
        (1, 28, 28),
        62,
    )
    np.testing.assert_allclose(found.devices[1].X, data["w2"]["x"])
    assert read_femnist(tmp_path, most=1).devices.ids == ["w1"]
    for bad in (
        '{"user_data": {"a": {"x": [[1, 2]], "y": [0]}}}',
        "[1]",
        "{",
        '{"user_data": {"a": {"y": []}}}',
    ):
        (tmp_path / "all_0.json").write_text(bad)
        with pytest.raises(InputError, match="is not FEMNIST as LEAF writes it"):
            read_femnist(tmp_path)


def test_quarter_turns_are_exact():
    """Turning by a quarter moves pixels and mixes none, in every channel."""
    images = np.random.default_rng(0).random((8, 3, 5, 5))
    straight, turned = (
        clustered_images(
            images, np.arange(8), 4, clusters=k, rows=1, held=1, training=4, seed=2
        )
        for k in (1, 4)
    )
    for i in range(4):
        a, b = (world.training[i].X.reshape(3, 5, 5) for world in (straight, turned))
        options = [np.rot90(a, k, axes=(1, 2)) for k in (i, -i)]
        assert any(np.allclose(b, option, atol=1e-9) for option in options)
    with pytest.raises(
        InputError, match=r"images must be \(images, channels, height, width\)"
    ):
        clustered_images(
            images[:, 0], np.arange(8), 2, clusters=1, rows=1, held=1, training=4
        )


def test_deep_pixels_are_scaled_not_cut_off(tmp_path):
    (tmp_path / "ann" / "cat").mkdir(parents=True)
    where = tmp_path / "ann" / "cat" / "1.png"
    Image.fromarray(np.array([[0, 13107], [65535, 257]], dtype=np.uint16)).save(where)
    np.testing.assert_allclose(
        read_image_folder(tmp_path).devices.X, [[0, 0.2, 1, 1 / 255]]
    )
    Image.fromarray(np.ones((2, 2), dtype=np.float32)).save(where.with_suffix(".tif"))
    with pytest.raises(InputError, match="32 bits"):
        read_image_folder(tmp_path)
    with pytest.raises(InputError, match="size must be two whole numbers"):
        read_image_folder(tmp_path, size=8)


def test_archives_of_masks_and_of_nothing(tmp_path):
    np.savez(
        tmp_path / "a.npz", X=np.ones((2, 2, 2), dtype=bool), y=[0, 1], device=[0, 1]
    )
    assert read_npz(tmp_path / "a.npz").devices.X.max() == 1
    np.savez(
        tmp_path / "b.npz",
        X=np.ones((2, 0, 2), dtype=np.uint8),
        y=[0, 1],
        device=[0, 1],
    )
    with pytest.raises(InputError, match="one entry a row"):
        read_npz(tmp_path / "b.npz")


@pytest.mark.parametrize(
    "images",
    [np.full((20, 1, 2, 2), 255, dtype=np.uint8), np.full((20, 1, 2, 2), np.nan)],
)
def test_images_to_deal_out_are_from_0_to_1(images):
    with pytest.raises(InputError, match="from 0 to 1"):
        clustered_images(
            images, np.zeros(20), 4, clusters=2, rows=2, held=2, training=10
        )
    with pytest.raises(InputError, match="labels must be numbers"):
        clustered_images(
            np.zeros((20, 1, 2, 2)),
            ["a"] * 20,
            4,
            clusters=2,
            rows=2,
            held=2,
            training=10,
        )


@pytest.mark.parametrize("alpha", [0.1, 100.0])
def test_a_dirichlet_deal_gives_every_image_to_one_device(alpha):
    images = np.linspace(0, 1, 600).reshape(600, 1, 1, 1)
    labels = np.arange(600) % 6
    world = dirichlet_images(images, labels, 8, alpha=alpha, least=4, seed=3)
    both = np.concatenate([world.training.X, world.held.X])
    assert sorted(both[:, 0].tolist()) == images.ravel().tolist()
    assert (world.training.counts + world.held.counts >= 4).all()
    assert (world.held.counts >= 1).all()
    seen = [len(np.unique(world.training[i].y)) for i in range(8)]
    assert (np.mean(seen) < 4) == (alpha < 1)
    again = dirichlet_images(images, labels, 8, alpha=alpha, least=4, seed=3)
    np.testing.assert_array_equal(again.training.X, world.training.X)


def test_too_few_images_for_a_dirichlet_deal_are_said():
    images = np.zeros((20, 1, 2, 2))
    with pytest.raises(InputError, match="20 images are too few for 5 devices"):
        dirichlet_images(images, np.arange(20) % 2, 5, alpha=1.0, least=10)
    with pytest.raises(InputError, match="alpha must be greater than 0"):
        dirichlet_images(images, np.arange(20) % 2, 5, alpha=0.0)


@pytest.mark.parametrize("name", ["1.png", "1.tiff"])
def test_no_file_is_run_by_ghostscript_whatever_it_is_called(
    tmp_path, monkeypatch, name
):
    """Pillow looks at the beginning of a file, not at its name."""
    ran = []
    monkeypatch.setattr(
        "PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: ran.append(1)
    )
    put(tmp_path, "a", "cat", "0.png", np.zeros((2, 2), dtype=np.uint8))
    text = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 2 2\n%%EndComments\n%%EOF\n"
    (tmp_path / "a" / "cat" / name).write_text(text)
    with pytest.raises(InputError, match="cannot be read as an image"):
        read_image_folder(tmp_path)
    assert not ran


def test_a_pipe_in_a_folder_of_images_holds_nobody(tmp_path):
    put(tmp_path, "a", "cat", "0.png", np.zeros((2, 2), dtype=np.uint8))
    os.mkfifo(tmp_path / "a" / "cat" / "1.png")
    assert read_image_folder(tmp_path).devices.counts.tolist() == [1]


def test_small_files_do_not_become_many_pixels(tmp_path, monkeypatch):
    put(tmp_path, "a", "cat", "0.png", np.zeros((900, 900), dtype=np.uint8))
    for i in range(1, 30):
        shutil.copy(
            tmp_path / "a" / "cat" / "0.png", tmp_path / "a" / "cat" / f"{i}.png"
        )
    monkeypatch.setattr("persfl.sources.image_files._ROOM", 2**24)
    with pytest.raises(InputError, match="would take 194,400,000. Scale all"):
        read_image_folder(tmp_path)
    assert read_image_folder(tmp_path, size=(9, 9)).shape == (1, 9, 9)


def test_deep_json_is_a_sentence(tmp_path):
    (tmp_path / "all.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="is not FEMNIST as LEAF writes it"):
        read_femnist(tmp_path)
