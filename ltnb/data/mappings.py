"""Which class a class is mistaken for: the mappings of asymmetric label noise, by name.

Without torch, so that settings can be checked at once. A class that a mapping leaves out keeps its labels.
"""

from collections.abc import Sequence

#: The classes of CIFAR-10 in the order of their numbers.
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

#: The twenty superclasses of CIFAR-100 (Krizhevsky 2009) and the five classes of each.
CIFAR100_SUPERCLASSES = {
    "aquatic mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit and vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household electrical devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large man-made outdoor things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large natural outdoor scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large omnivores and herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium-sized mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles 1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles 2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}

#: The classes of CIFAR-100 in the order of their numbers, which is that of the alphabet.
CIFAR100_CLASSES = tuple(sorted(name for names in CIFAR100_SUPERCLASSES.values() for name in names))


def _by_name(mapping: dict[str, str], classes: Sequence[str]) -> dict[int, int]:
    return {classes.index(source): classes.index(target) for source, target in mapping.items()}


def _cycles(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    """Every class of a group goes to the group's next one, and the last one to the first."""
    return {group[i]: group[(i + 1) % len(group)] for group in groups for i in range(len(group))}


#: Name, as in `params.yaml`, to the mapping {class: the class that it is mistaken for}.
MAPPINGS: dict[str, dict[int, int]] = {
    # Measured on the 1,297 digits outside the default test split: logistic regression (scikit-learn's defaults on the
    # 64 pixels), five-fold cross-validation with five shuffles, 4.2 % errors. Of each digit its most frequent mistake,
    # and of these the five most frequent: 8→1 36 times, 1→8 16, 5→9 and 3→8 15 each, 6→1 12. Five of ten classes,
    # one pair both ways, as in the mappings of MNIST and CIFAR-10.
    "digits": {8: 1, 1: 8, 5: 9, 3: 8, 6: 1},
    # Patrini et al. (CVPR 2017) and, of PAL's experiments, Ma et al. (ICML 2020).
    "mnist": {7: 1, 2: 7, 5: 6, 6: 5, 3: 8},
    "cifar10": _by_name(
        {"truck": "automobile", "bird": "airplane", "cat": "dog", "dog": "cat", "deer": "horse"}, CIFAR10_CLASSES
    ),
    # As in the code of Ma et al.: blocks of five consecutive numbers. Those are neighbours in the alphabet (apple,
    # aquarium_fish, baby, bear, beaver) and not superclasses, whatever that code's comment says.
    "cifar100-blocks": _cycles([range(first, first + 5) for first in range(0, 100, 5)]),
    # What was meant: the next class of the same superclass.
    "cifar100-superclasses": _cycles(
        [[CIFAR100_CLASSES.index(name) for name in sorted(names)] for names in CIFAR100_SUPERCLASSES.values()]
    ),
}
