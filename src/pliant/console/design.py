"""The look of the console: one style sheet, light and dark, for the pages and the door."""

from pathlib import Path

STYLE = (Path(__file__).parent / "style.css").read_text("utf-8")

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
    '<rect width="32" height="32" rx="7" fill="#1f4fd8"/>'
    '<path d="M7 22V10h4v12zm7 0v-7h4v7zm7 0v-4h4v4z" fill="#fff"/></svg>'
)
"""The logo: three quotas as bars."""

TONES = {
    "Running": "good",
    "Succeeded": "good",
    "Ready": "good",
    "Pending": "waits",
    "Creating": "waits",
    "ContainerCreating": "waits",
    "Updating": "waits",
    "Terminating": "waits",
    "Stopping": "waits",
    "Suspended": "quiet",
    "Stopped": "quiet",
    "Cancelled": "quiet",
    "Failed": "bad",
    "Error": "bad",
    "CrashLoopBackOff": "bad",
    "NotReady": "bad",
}
"""Status -> its style. The word is always shown too, so that nothing depends on colour alone."""


def tone(status: str) -> str:
    return TONES.get(status, "quiet")
