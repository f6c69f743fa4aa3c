"""Checks of preprocessing and calibration samples: do the samples fit what the network was trained on?"""
