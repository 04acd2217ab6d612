"""Runs the provider Canaille with a store in SQLite, by the Python that `setup` made.

It reads JSON: store, port, the address to which browsers return, the clients' secret, its keys, whether it
gives refresh tokens. With `groups` it does not serve: it puts each user into exactly these groups, with a
mail address named after the first of them, and locks users without a group. Passwords are the names.
"""

import datetime
import json
import os
import sys

from authlib.common.security import generate_token
from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from canaille.oidc.provider import authorization
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

NUMBERS = {"anna": 1, "boris": 0, "local": 4294967290}
"""uids of accounts, sent as the claim `locale`, the only free one here. Every Linux has 0 and 1."""
PEOPLE = {"anna": ["team"], "boris": ["others"], "local": ["team"], "carol": ["team", "chiefs"]}


def made(told):
    keys = [RSAKey.import_key(key) for key in told["keys"]]
    new = not os.path.exists(told["store"])
    app = create_app(
        config={
            "SECRET_KEY": told["secret"],
            "SERVER_NAME": f"127.0.0.1:{told['port']}",
            "PREFERRED_URL_SCHEME": "http",
            "CANAILLE_SQL": {
                "DATABASE_URI": f"sqlite:///{told['store']}",
                "AUTO_MIGRATE": new,
                "PASSWORD_HASH_PARAMS": {"pbkdf2_sha512__rounds": 1000},
            },
            "CANAILLE": {"DATABASE": "sql", "HTMX": False, "JAVASCRIPT": False, "SMTP": None},
            "CANAILLE_OIDC": {
                "ACTIVE_JWKS": [key.as_dict(private=True) for key in keys[:1]],
                "INACTIVE_JWKS": [key.as_dict(private=True) for key in keys[1:]],
                "USERINFO_MAPPING": {
                    "SUB": "id-of-{{ user.user_name }}",
                    "PREFERRED_USERNAME": "{{ user.user_name }}",
                    "LOCALE": f"{{{{ {NUMBERS}.get(user.user_name, '') }}}}",
                },
            },
        }
    )
    # Its own tokens depend on the second: two logins in one would get equal tokens, which its store refuses.
    authorization._token_generators["default"].access_token_generator = lambda **_: generate_token(48)
    with app.app_context():
        if not new:
            return app
        save = Backend.instance.save
        users = {}
        for name in PEOPLE:
            users[name] = models.User(
                user_name=name,
                formatted_name=name,
                family_name=name,
                emails=[f"{name}@example.org"],
                password=name,
            )
            save(users[name])
        for group in sorted({group for groups in PEOPLE.values() for group in groups}):
            members = [users[name] for name, groups in PEOPLE.items() if group in groups]
            save(models.Group(display_name=group, members=members))
        for client in ("pliant", "another"):
            client = models.Client(
                client_id=client,
                client_secret=told["secret"],
                client_name=client,
                client_uri="http://127.0.0.1",
                redirect_uris=[told["back"]],
                post_logout_redirect_uris=[told["back"].replace("openid/back", "login")],
                grant_types=["authorization_code", *(["refresh_token"] if told["refresh"] else [])],
                response_types=["code"],
                token_endpoint_auth_method="client_secret_basic",
                scope=["openid", "profile", "email", "groups"],
                contacts=["admin@example.org"],
            )
            save(client)
            client.audience = [client]
            save(client)
    return app


def change(app, people):
    with app.app_context():
        save, find = Backend.instance.save, Backend.instance.query
        for group in find(models.Group):
            group.members = [it for it in group.members if it.user_name not in people]
            group.members += [
                find(models.User, user_name=name)[0]
                for name, groups in people.items()
                if group.display_name in groups
            ]
            save(group)
        for name, groups in people.items():
            user = find(models.User, user_name=name)[0]
            if groups:
                user.emails = [f"{name}@{groups[0]}.example.org"]
            else:
                user.lock_date = datetime.datetime.now(datetime.UTC)
            save(user)


if __name__ == "__main__":
    told = json.load(sys.stdin)
    if "groups" in told:
        change(made(told), told["groups"])
        sys.exit()
    make_server("127.0.0.1", told["port"], made(told), threaded=True).serve_forever()
