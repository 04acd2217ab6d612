"""Rights from groups of the provider follow changes of the groups without a new login."""

from contextlib import contextmanager

from pliant.api.identity.following import Following
from pliant.model.rights import PRACTITIONER, VIEWER
from tests.openid.rig import canaille
from tests.openid.test_login import a_site

ROLES = (("team", PRACTITIONER.id, "default"), ("others", VIEWER.id, ""))
TEAM, OTHERS = {("AI practitioner", "project")}, {("Viewer", "tenant")}
NOW, NEVER = 0.0, 1e9  # seconds


class Followed:
    """A site, and the rights of each person there with a session and with an access key."""

    def __init__(self, site) -> None:
        self.site = site
        self.following = Following(site.app.state.context)
        self.look = self.following.look
        self.headers = {}

    def log_in(self, name):
        token = self.site.bearer(name)
        made = self.site.browser(**token).post("/api/v1/access-keys", json={"name": "mine"})
        assert made.status_code < 300, made.text
        row = made.json()
        self.headers[name] = {
            "session": token,
            "key": {"Authorization": f"Bearer plk_{row['clientId']}_{row['clientSecret']}"},
        }

    def held(self, name, by):
        """The roles that it holds; None if it is refused."""
        answer = self.site.browser(**self.headers[name][by]).get("/api/v1/whoami")
        if answer.status_code == 401:
            return None
        return {(it["role"], it["scopeType"]) for it in answer.json()["roles"]}

    def both(self, name):
        session, key = (self.held(name, by) for by in ("session", "key"))
        assert session == key
        return key

    def row(self, name):
        return self.site.app.state.context.service.board.access.user_names[name]


@contextmanager
def followed(folder, refresh=True, **more):
    with canaille(folder, refresh=refresh) as provider, a_site(folder, provider, roles=ROLES, **more) as site:
        yield Followed(site), provider


def test_rights_follow_the_groups_without_a_login(tmp_path):
    with followed(tmp_path) as (it, provider):
        for name in ("anna", "boris"):
            it.log_in(name)
        assert it.both("anna") == TEAM
        provider.put(anna=["others"])
        it.look()
        assert it.both("anna") == TEAM, "within the time nobody is asked"
        it.look(every=NOW)
        assert it.both("anna") == OTHERS and it.both("boris") == OTHERS
        assert it.row("anna").groups == ("others",)
        # Each answer has a new token, which the next request to the provider uses.
        provider.put(anna=["team", "others"])
        it.look(every=NOW)
        assert it.both("anna") == TEAM | OTHERS


def test_the_mail_address_and_the_account_follow_like_the_groups(tmp_path, monkeypatch):
    scopes = ("openid", "profile", "email", "groups")
    with followed(tmp_path, scopes=scopes, uid="locale", box=True) as (it, provider):
        it.log_in("anna")
        assert it.row("anna").email == "anna@example.org"
        provider.put(anna=["others"])
        it.look(every=NOW)
        row = it.row("anna")
        assert (row.email, row.account.name, it.both("anna")) == ("anna@others.example.org", "daemon", OTHERS)
        # The account that the provider names is removed from the machine.
        monkeypatch.setattr("pliant.api.identity.signin.look_up", lambda uid: None)
        it.look(every=NOW)
        assert it.held("anna", "session") is None and it.held("anna", "key") == set()


def test_who_is_locked_out_there_loses_rights_and_sessions_here(tmp_path):
    with followed(tmp_path) as (it, provider):
        it.log_in("anna")
        provider.put(anna=[])
        it.look(every=NOW)
        assert it.held("anna", "session") is None and it.held("anna", "key") == set()
        assert not it.row("anna").again, "it is not asked again"


def test_who_is_in_no_group_that_may_log_in(tmp_path):
    with followed(tmp_path, allowed=("team",)) as (it, provider):
        it.log_in("anna")
        provider.put(anna=["others"])
        it.look(every=NOW)
        assert it.held("anna", "session") is None and it.held("anna", "key") == set()


def test_while_the_provider_is_away_rights_last_as_long_as_a_token(tmp_path):
    with followed(tmp_path) as (it, provider):
        it.log_in("anna")
        provider.stop()
        it.look(every=NOW)
        assert it.both("anna") == TEAM
        it.look(every=NOW, lasts=NOW)
        assert it.both("anna") == set() and it.row("anna").groups == ()
        provider.start()
        it.following._provider._failed = float("-inf")  # it would ask again after 5 s
        it.look(every=NOW, lasts=NOW)
        assert it.both("anna") == TEAM


def test_a_provider_that_gives_no_refresh_token(tmp_path):
    with followed(tmp_path, refresh=False) as (it, _):
        it.log_in("anna")
        it.look(every=NOW)
        assert it.both("anna") == TEAM
        it.look(lasts=NOW)
        assert it.both("anna") == set()
        it.log_in("boris")
        assert it.both("boris") == OTHERS


def test_a_wrong_client_secret_takes_nothing_from_anybody(tmp_path):
    with followed(tmp_path) as (it, _):
        it.log_in("anna")
        (tmp_path / "client-secret").write_text("another")
        it.look(every=NOW)
        assert it.both("anna") == TEAM and it.row("anna").again


def test_the_token_of_the_provider_is_stored_sealed_and_told_to_nobody(tmp_path):
    with followed(tmp_path) as (it, _):
        it.log_in("anna")
        context = it.site.app.state.context
        opened = context.authority.vault.opened(it.row("anna").again, "", "")
        (token,) = opened.values()
        it.look(every=NOW)
        owner = it.site.owner()
        for path in ("/api/v1/users", "/api/v1/audit/log"):
            text = owner.get(path).text
            assert token not in text and it.row("anna").again not in text
        for file in tmp_path.rglob("*"):
            if file.is_file() and "store.sqlite" not in file.name:  # the provider's own
                assert token.encode() not in file.read_bytes(), file
