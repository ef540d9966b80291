"""ResNet-50-D as timm builds it (resnet50d), from torchvision's ResNet-50: the twin of Redline's."""

import torch
import torchvision


def conv3x3(channels, out_channels, stride):
    return torch.nn.Conv2d(channels, out_channels, 3, stride=stride, padding=1, bias=False)


def downsample(channels, out_channels, stride):
    """timm keeps a place for the pool where there is none, so that the convolution has the same name everywhere."""
    pool = torch.nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False) if stride > 1 else torch.nn.Identity()
    return torch.nn.Sequential(
        pool, torch.nn.Conv2d(channels, out_channels, 1, bias=False), torch.nn.BatchNorm2d(out_channels)
    )


def resnet50d(num_classes):
    network = torchvision.models.resnet50(num_classes=num_classes)
    network.conv1 = torch.nn.Sequential(
        conv3x3(3, 32, 2), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
        conv3x3(32, 32, 1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
        conv3x3(32, 64, 1),
    )  # fmt: skip
    for stage, channels in ((1, 64), (2, 256), (3, 512), (4, 1024)):
        first = getattr(network, f"layer{stage}")[0]
        first.downsample = downsample(channels, 64 * 2 ** (stage + 1), 1 if stage == 1 else 2)
    return network


def build(model, num_classes):
    """A model by the name that Redline knows it by."""
    if model == "resnet50d":
        return resnet50d(num_classes)
    return getattr(torchvision.models, model)(num_classes=num_classes)
