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
    TokenRecord { name: name.into(), role: Role::Viewer, digest: secret.digest(), made: "now".into(), by: "me".into() }
}

fn add(contents: &mut Contents, token: TokenRecord) -> Result<(), Problem> {
    contents.tokens.push(token);
    Ok(())
}

#[test]
fn accounts_are_there_after_a_restart_and_their_secrets_are_not_in_the_file() {
    let (path, secret) = (path("kept"), Secret::random().unwrap());
    let accounts = Accounts::load(Some(path.clone())).unwrap();
    accounts.change(|contents| add(contents, token("monitor", &secret))).unwrap();
    let again = Accounts::load(Some(path.clone())).unwrap();
    assert_eq!(again.token(&secret.token()), Some(Owner::Token("monitor".into(), Role::Viewer)));
    for wrong in [secret.text(), "swt_", "", &format!("swt_{}", again.contents().tokens[0].digest)] {
        assert_eq!(again.token(wrong), None);
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
        "{\"version\":2,\"users\":[],\"tokens\":[]}",
        "{\"version\":1,\"users\":[],\"tokens\":[],\"x\":1}",
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = Accounts::load(Some(path.clone())).err().unwrap();
        assert!(matches!(error, FileError::Damaged { .. }), "{text}: {error}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Accounts::load(Some(path.clone())).err().unwrap(), FileError::Open { .. }));
    fs::remove_file(path).unwrap();
}

#[test]
fn what_cannot_be_kept_has_not_changed() {
    let accounts = Accounts::load(Some("/proc/none/accounts.json".into())).unwrap();
    let secret = Secret::random().unwrap();
    let refused = accounts.change(|contents| add(contents, token("a", &secret))).unwrap_err();
    assert_eq!((&*refused.code, accounts.token(&secret.token())), ("not-kept", None));
    assert_eq!(Accounts::load(None).unwrap().change(|_| Ok(())).unwrap_err().code, "not-kept");
}

#[test]
fn a_code_is_good_for_one_log_in() {
    let accounts = Accounts::load(None).unwrap();
    assert!(!accounts.take_code(""));
    let (first, second) = (accounts.new_code().unwrap(), accounts.new_code().unwrap());
    assert!(!accounts.take_code(first.text()), "there is a newer one");
    assert!(accounts.take_code(second.text()) && !accounts.take_code(second.text()));
}

#[test]
fn a_session_has_the_role_that_its_user_has_now() {
    let path = path("roles");
    let accounts = Accounts::load(Some(path.clone())).unwrap();
    let secret = accounts.begin_session("a").unwrap();
    assert_eq!(accounts.session(secret.text()), None, "there is no such user");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let password = runtime.block_on(accounts.hashing.hash("a long password".into())).unwrap();
    let is_right = |text: &str, hash| runtime.block_on(accounts.hashing.is_right(text.into(), hash)).unwrap();
    assert!(is_right("a long password", Some(password.clone())) && !is_right("another", Some(password.clone())));
    assert!(!is_right("another", None));
    for role in [Role::Viewer, Role::Administrator] {
        let user = UserRecord { name: "a".into(), role, password: password.clone() };
        let set = |contents: &mut Contents| {
            contents.users = vec![user];
            Ok(())
        };
        accounts.change(set).unwrap();
        assert_eq!(accounts.session(secret.text()), Some(Owner::User("a".into(), role)));
    }
    accounts.end_session(secret.text());
    assert_eq!(accounts.session(secret.text()), None);
    fs::remove_file(path).unwrap();
}
