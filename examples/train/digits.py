"""Handwritten digits as a dataset of images: the 1,797 that Pliant ships, 8 x 8 pixels."""

import torch
from torch.utils.data import Dataset

from pliant.engines.local.images.quickstart.digits import TRAINING
from pliant.engines.local.images.quickstart.digits import Digits as Records


class Digits(Dataset):
    """(image, label). With `augment` an image is shifted at random by up to a pixel each time it is read."""

    def __init__(self, *, train: bool, augment: bool = False) -> None:
        records = Records(0)
        part = slice(None, TRAINING) if train else slice(TRAINING, None)
        self.images = torch.tensor(records._pixels[part], dtype=torch.float32).reshape(-1, 1, 8, 8)
        self.labels = torch.tensor(records._labels[part])
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.images[index]
        if self.augment:
            down, right = torch.randint(-1, 2, (2,)).tolist()
            image = image.roll((down, right), (1, 2))
        return image, self.labels[index]
