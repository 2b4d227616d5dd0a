"""What does a reasoning model gain by losing an attention head?"""

__version__ = "0.1.0"
