"""Sends notices by mail."""

import smtplib
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path

from pliant.model.notice import END, FAILURE, PREEMPTION, START, TEST, MailServer, Notice

SECONDS = 30
MOST = 50
"""Most notices that one message lists; of the others it gives the number."""

WORDS = {START: "started", END: "completed", FAILURE: "failed", PREEMPTION: "lost GPUs", TEST: "test"}


def deliver(server: MailServer | None, address: str, rows: Sequence[Notice]) -> None:
    """Send one message. Raises OSError."""
    if server is None:
        raise OSError("no mail server is set (pliant notify server)")
    message = written(server.sender, address, rows)
    try:
        with _connected(server) as link:
            if server.login:
                link.login(server.login, _password(server.password_file))
            link.send_message(message)
    except smtplib.SMTPException as error:
        raise OSError(f"{server.host}:{server.port} refused it: {error}") from error


def written(sender: str, address: str, rows: Sequence[Notice]) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = sender, address
    message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain="pliant.invalid")
    message["Auto-Submitted"] = "auto-generated"
    message["Subject"] = (
        f"[pliant] {_title(rows[0])}" if len(rows) == 1 else f"[pliant] {len(rows)} events of your jobs"
    )
    lines = [line for row in rows[:MOST] for line in _lines(row)]
    if len(rows) > MOST:
        lines.append(f"{len(rows) - MOST} more events: pliant history")
    lines += ["", "To end these messages: pliant notify list, then pliant notify remove ID"]
    message.set_content("\n".join(lines) + "\n")
    return message


def _title(row: Notice) -> str:
    return f"{row.name} {WORDS[row.event]}" if row.workload else WORDS[row.event]


def _lines(row: Notice) -> list[str]:
    at = datetime.fromtimestamp(row.at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    where = f" (project {row.project}, user {row.user})" if row.workload else ""
    command = [f"  pliant describe job {row.name} -p {row.project}"] if row.workload else []
    return [f"{at}  {_title(row)}{where}", f"  {row.message}", *command, ""]


def _connected(server: MailServer) -> smtplib.SMTP:
    own = server.sender.rpartition("@")[2]  # our name for the mail server: to ask the resolver may be slow
    if server.security == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(server.host, server.port, own, timeout=SECONDS, context=context)
    link = smtplib.SMTP(server.host, server.port, own, timeout=SECONDS)
    if server.security == "starttls":
        try:
            link.starttls(context=ssl.create_default_context())
        except BaseException:
            link.close()
            raise
    return link


def _password(place: str) -> str:
    try:
        return Path(place).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OSError(f"the file with the password, {place}, cannot be read: {error}") from error
