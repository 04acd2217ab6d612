"""Routes for security settings: how long a login lasts, and what passwords must be like."""

from fastapi import Response

from pliant.api.context import Context, Here
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.late import Router
from pliant.api.responses.encoding import answer, answers
from pliant.api.schemas.models import Received
from pliant.control.errors import NotFound
from pliant.control.state.setting import BY_NAME, SECURITY, SETTINGS, Setting, read
from pliant.sched.settings import Settings
from pliant.wire.access import SecuritySetting, SecuritySettingChange, SecuritySettingList

router = Router(prefix="/api/v1/security/settings", tags=["people and programs"])

OURS = tuple(setting for setting in SETTINGS if setting.field in SECURITY)


@router.get("", dependencies=[needs("security-settings:read")], **answers(200, SecuritySettingList))
def security_settings(here: Here) -> Response:
    return answer({"settings": [_item(here, setting) for setting in OURS]})


@router.get("/{key}", dependencies=[needs("security-settings:read")], **answers(200, SecuritySetting))
def security_setting(key: str, here: Here) -> Response:
    return answer(_item(here, _known(key)))


@router.put("/{key}", dependencies=[needs("security-settings:update")], **answers(200, SecuritySetting))
def set_security_setting(
    key: str, body: Received[SecuritySettingChange], here: Here, caller: Caller
) -> Response:
    """It holds for logins and passwords from now on; null: the built-in value."""
    setting = _known(key)
    here.service.tune(read({setting.name: body["value"]}), caller.user)
    return answer(_item(here, setting))


def _known(key: str) -> Setting:
    found = BY_NAME.get(key)
    if found is None or found not in OURS:
        raise NotFound(
            f"There is no security setting {key[:60]!r}.", f"There are: {', '.join(it.name for it in OURS)}."
        )
    return found


def _item(here: Context, setting: Setting) -> SecuritySetting:
    value, default = (getattr(of, setting.field) for of in (here.service.board.settings, Settings()))
    return {
        "key": setting.name,
        "value": setting.show(value),
        "default": setting.show(default),
        "about": setting.about,
    }
