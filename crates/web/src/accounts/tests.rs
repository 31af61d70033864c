use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn path(name: &str) -> PathBuf {
    let path = env::temp_dir().join(format!("sanwire-accounts-{name}-{}.json", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

fn token(name: &str, secret: &Secret) -> TokenRecord {
    TokenRecord {
        name: name.into(),
        role: Role::Viewer,
        pools: vec![],
        digest: secret.digest(),
        made: "now".into(),
        by: "me".into(),
        expires: None,
    }
}

fn add(contents: &mut Contents, token: TokenRecord) -> Result<(), Problem> {
    contents.tokens.push(token);
    Ok(())
}

/// What is kept of a password, without the work.
fn hash(text: &str) -> Hash {
    let hash = serde_json::json!({ "memory_kib": 8, "passes": 1, "lanes": 1, "salt": "", "hash": text });
    serde_json::from_value(hash).unwrap()
}

fn user(name: &str, role: Role, password: &str) -> UserRecord {
    UserRecord { name: name.into(), role, password: hash(password) }
}

/// This is the only user then.
fn set(contents: &mut Contents, user: UserRecord) -> Result<(), Problem> {
    contents.users = vec![user];
    Ok(())
}

#[test]
fn accounts_are_there_after_a_restart_and_their_secrets_are_not_in_the_file() {
    let (path, secret) = (path("kept"), Secret::random().unwrap());
    let accounts = Accounts::load(Some(path.clone())).unwrap();
    accounts.change(|contents| add(contents, token("monitor", &secret)), || ()).unwrap();
    let again = Accounts::load(Some(path.clone())).unwrap();
    let owner = |text: &str| Proof::of_token(text).and_then(|proof| again.owner(&proof).ok());
    assert_eq!(owner(&secret.token()), Some(Owner::Token("monitor".into(), Role::Viewer, vec![])));
    for wrong in [secret.text(), "swt_", "", &format!("swt_{}", again.contents().tokens[0].digest)] {
        assert_eq!(owner(wrong), None);
    }
    assert!(!fs::read_to_string(&path).unwrap().contains(secret.text()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(path).unwrap();
}

#[test]
fn what_is_damaged_or_open_to_others_lets_nobody_in() {
    let path = path("damaged");
    for text in [
        "",
        "{",
        "[]",
        "{\"version\":0,\"users\":[],\"tokens\":[]}",
        "{\"version\":1,\"users\":[],\"tokens\":[],\"x\":1}",
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = Accounts::load(Some(path.clone())).err().unwrap();
        assert!(matches!(error, FileError::Damaged { .. }), "{text}: {error}");
    }
    for newer in ["{\"version\":2,\"users\":[],\"tokens\":[]}", "{\"version\":3,\"people\":{}}"] {
        fs::write(&path, newer).unwrap();
        let error = Accounts::load(Some(path.clone())).err().unwrap();
        assert!(matches!(error, FileError::Newer { version: 2 | 3, .. }), "{newer}: {error}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Accounts::load(Some(path.clone())).err().unwrap(), FileError::Open { .. }));
    fs::remove_file(path).unwrap();
}

#[test]
fn what_cannot_be_kept_has_not_changed() {
    let accounts = Accounts::load(Some("/proc/none/accounts.json".into())).unwrap();
    let (secret, code) = (Secret::random().unwrap(), accounts.new_code(None).unwrap().unwrap());
    let note = || panic!("nothing was changed");
    let refused = accounts.change(|contents| add(contents, token("a", &secret)), note).unwrap_err();
    let proof = Proof::Token(secret.digest());
    assert_eq!((&*refused.code, accounts.owner(&proof)), ("not-kept", Err(NoOwner::Unknown)));
    let root = user("root", Role::Administrator, "x");
    assert_eq!(accounts.change(|contents| set(contents, root), note).unwrap_err().code, "not-kept");
    assert!(accounts.is_code(code.text()), "nobody has become an administrator by it");
    let nowhere = Accounts::load(None).unwrap();
    assert_eq!(nowhere.change(|_| Ok(()), note).unwrap_err().code, "not-kept");
    assert!(nowhere.new_code(None).unwrap().is_none(), "nobody could become an administrator by it");
}

#[test]
fn a_code_is_good_until_there_is_an_administrator() {
    let path = path("code");
    let accounts = Accounts::load(Some(path.clone())).unwrap();
    assert!(!accounts.is_code(""));
    let first_code = || accounts.new_code(None).unwrap();
    let (first, second) = (first_code().unwrap(), first_code().unwrap());
    assert!(!accounts.is_code(first.text()) && accounts.is_code(second.text()), "the newest one counts");
    let put = |role| accounts.change(|contents| set(contents, user("a", role, "x")), || ()).unwrap();
    put(Role::Operator);
    assert!(accounts.is_code(second.text()));
    put(Role::Administrator);
    assert!(!accounts.is_code(second.text()) && first_code().is_none());
    fs::remove_file(path).unwrap();
}

#[test]
fn a_session_begins_by_the_password_that_is_kept_and_ends_with_it() {
    let path = path("password");
    let accounts = Accounts::load(Some(path.clone())).unwrap();
    let put = |password| {
        let role = Role::Viewer;
        accounts.change(|contents| set(contents, user("a", role, password)), || ()).unwrap();
    };
    let begin = |password| accounts.begin_session("a", &hash(password)).unwrap().map(|(secret, _)| secret);
    put("old");
    let secret = begin("old").unwrap();
    let owner = || accounts.owner(&Proof::of_session(secret.text())).ok();
    put("old");
    assert_eq!(owner(), Some(Owner::User("a".into(), Role::Viewer)));
    put("new");
    assert_eq!((owner(), begin("old").is_none(), begin("new").is_some()), (None, true, true));
    fs::remove_file(path).unwrap();
}

#[test]
fn a_session_has_the_role_that_its_user_has_now() {
    let path = path("roles");
    let accounts = Accounts::load(Some(path.clone())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let password = runtime.block_on(accounts.hashing.hash("a long password".into())).unwrap();
    let is_right = |text: &str, hash| runtime.block_on(accounts.hashing.is_right(text.into(), hash)).unwrap();
    assert!(is_right("a long password", Some(password.clone())) && !is_right("another", Some(password.clone())));
    assert!(!is_right("another", None));
    let put = |role| {
        let user = UserRecord { name: "a".into(), role, password: password.clone() };
        accounts.change(|contents| set(contents, user), || ()).unwrap();
    };
    assert!(accounts.begin_session("a", &password).unwrap().is_none(), "there is no such user");
    put(Role::Operator);
    let (secret, _) = accounts.begin_session("a", &password).unwrap().unwrap();
    let owner = || accounts.owner(&Proof::of_session(secret.text())).ok();
    for role in [Role::Viewer, Role::Administrator] {
        put(role);
        assert_eq!(owner(), Some(Owner::User("a".into(), role)));
    }
    accounts.end_session(secret.text());
    assert_eq!(owner(), None);
    fs::remove_file(path).unwrap();
}

#[test]
fn what_stands_in_the_file_counts_although_it_may_not_be_stable() {
    let path = path("unstable");
    let (before, mut after) = (Contents::default(), Contents::default());
    set(&mut after, user("a", Role::Viewer, "x")).unwrap();
    replace_file(&path, &file::written(&after).unwrap()).unwrap();
    assert!(file::has(&path, &after) && !file::has(&path, &before));
    fs::remove_file(&path).unwrap();
    assert!(!file::has(&path, &after) && file::has(&path, &before), "nothing is written where there is nobody");
}

#[test]
fn a_token_holds_until_its_time_is_over() {
    let path = path("expiring");
    let accounts = Accounts::load(Some(path.clone())).unwrap();
    let now = SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let secrets = [(); 3].map(|()| Secret::random().unwrap());
    for (secret, expires) in secrets.iter().zip([None, Some(now + 1000), Some(now)]) {
        let record = TokenRecord { expires, ..token("a", secret) };
        accounts.change(|contents| add(contents, record), || ()).unwrap();
    }
    let again = Accounts::load(Some(path.clone())).unwrap();
    let owners = secrets.each_ref().map(|secret| again.owner(&Proof::Token(secret.digest())).map(|owner| owner.role()));
    assert_eq!(owners, [Ok(Role::Viewer), Ok(Role::Viewer), Err(NoOwner::Expired)]);
    fs::remove_file(path).unwrap();
}
