"""Decode and encode any real-world video: frames by number or time, upright, uint8 RGB, or one sentence."""

from hostbot.video.container import VideoReader
from hostbot.video.demonstration import load_demonstration, open_video, probe
from hostbot.video.fit import Fit, Placement, Size, aligned_size, place
from hostbot.video.images import FolderReader, WebpReader
from hostbot.video.info import VideoInfo
from hostbot.video.limits import VideoLimits
from hostbot.video.live import LiveVideo, is_live
from hostbot.video.picture import fit_frames
from hostbot.video.reader import Reader, resample_times
from hostbot.video.source import PICTURES, crc32
from hostbot.video.table import FrameTable
from hostbot.video.writer import VideoCodec, VideoWriter

__all__ = [
    "PICTURES",
    "Fit",
    "FolderReader",
    "FrameTable",
    "LiveVideo",
    "Placement",
    "Reader",
    "Size",
    "VideoCodec",
    "VideoInfo",
    "VideoLimits",
    "VideoReader",
    "VideoWriter",
    "WebpReader",
    "aligned_size",
    "crc32",
    "fit_frames",
    "is_live",
    "load_demonstration",
    "open_video",
    "place",
    "probe",
    "resample_times",
]
