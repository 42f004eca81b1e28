"""Steps parameters with the update rules of torch.optim.

    torch_steps.py probe           whether torch can be used
    torch_steps.py run JOBS        a job a line: INPUT OUTPUT STEPS RULE NUMBERS SHAPES

NUMBERS is lr=0.1,beta1=0.9 with the numbers named as sluice::OptimizerNumber names them; SHAPES is 3x5,7 with a
parameter each. INPUT has fp32 values: all parameters one after the other, then their gradients step by step. OUTPUT gets
fp32 values: the parameters after each step, then the first and the second moments, as far as the rule keeps them.
"""
import sys

import torch


def make_optimizer(rule, numbers, parameters):
    options = dict(numbers)
    if "beta1" in options:
        options["betas"] = (options.pop("beta1"), options.pop("beta2"))
    if "nesterov" in options:
        options["nesterov"] = options["nesterov"] != 0
    make = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam,
            "adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}[rule]
    return make(parameters, foreach=False, **options)


def split(values, shapes):
    parts = values.split([torch.Size(shape).numel() for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes)]


def run(source, target, steps, rule, numbers, shapes):
    with open(source, "rb") as file:
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    rows = values.reshape(int(steps) + 1, -1)
    parameters = [part.clone().requires_grad_() for part in split(rows[0], shapes)]
    optimizer = make_optimizer(rule, numbers, parameters)
    kept = []
    for gradients in rows[1:]:
        for parameter, gradient in zip(parameters, split(gradients, shapes)):
            parameter.grad = gradient.clone()
        optimizer.step()
        kept += [parameter.detach().clone() for parameter in parameters]
    for names in (("exp_avg", "momentum_buffer"), ("exp_avg_sq", "sum")):
        for parameter in parameters:
            state = optimizer.state[parameter]
            kept += [state[name] for name in names if state.get(name) is not None]
    with open(target, "wb") as file:
        file.write(torch.cat([tensor.reshape(-1) for tensor in kept]).numpy().tobytes())


def main():
    print("torch", torch.__version__)
    if sys.argv[1] == "probe":
        return
    with open(sys.argv[2]) as jobs:
        for line in jobs:
            source, target, steps, rule, numbers, shapes = line.split()
            numbers = [pair.split("=") for pair in numbers.split(",")]
            run(source, target, steps, rule, [(name, float(value)) for name, value in numbers],
                [[int(size) for size in shape.split("x")] for shape in shapes.split(",")])


main()
