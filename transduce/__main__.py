"""python -m transduce"""

from transduce.cli import entry

if __name__ == "__main__":
    entry()
