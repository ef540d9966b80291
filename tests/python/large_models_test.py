"""The models that differ from others in their numbers alone, beside torchvision's: evaluation of its weights, and ONNX."""

import os

from helper import need, scratch

need("torch", "torchvision", "onnxruntime", "safetensors.torch")

from exported import check_eval, check_onnx, draw_images, images, make_weights, torchvision_logits  # noqa: E402

with scratch() as folder:
    draw_images(folder)
    x, labels = images(folder)
    for model in ("wide_resnet50_2", "wide_resnet101_2", "resnext101_32x8d", "resnext101_64x4d"):
        given = f"{folder}/{model}.safetensors"
        make_weights(given, model)
        expected = torchvision_logits(given, model, x)
        check_eval(folder, model, given, expected, labels)
        check_onnx(folder, model, given, x, expected, ["--fold-bn"])
        os.remove(given)
    print("torchvision and ONNX Runtime agree with Redline")
