//! Names with every kind of character: each is what it is, or refused.

use sanwire_server::Request;
use serde_json::json;

use super::accounts::PASSWORD;
use super::fixture;
use super::requests::answer;

/// Each ASCII character, and some of those that programs mistake for others.
fn names() -> Vec<String> {
    let ascii = (0..=127_u8).map(|byte| format!("v{}x", char::from(byte)));
    let odd = [
        "../v0",
        "v0/../v1",
        "%2e%2e",
        "v%00",
        "\u{202e}0v",
        "v\u{0301}",
        "ß",
        "名",
        "\u{feff}v0",
        "v0 ",
        "𝕧0",
        "a'b\"c;--",
        "{}",
        "v0?force=true",
        "v0#x",
    ];
    ascii.chain(odd.map(str::to_owned)).collect()
}

fn escaped(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn a_name_in_a_path_reaches_the_server_as_it_was_meant() {
    let web = fixture(answer);
    for name in names() {
        let unknown = web.get(&format!("/api/v1/volumes/{}", escaped(&name)));
        assert_eq!(unknown.code(), (404, "volume-unknown".into()), "{name:?}");
        assert_eq!(
            web.ask("POST", &format!("/api/v1/volumes/{}/eject", escaped(&name)), "", "").status,
            200,
            "{name:?}"
        );
        let asked = web.asked().pop().unwrap();
        assert_eq!(asked, Request::Start { request: Box::new(Request::EjectVolume { name, force: false }) });
    }
    for broken in ["%ff", "v%f", "%", "%zz", "v%c3%28"] {
        let told = web.get(&format!("/api/v1/volumes/{broken}"));
        assert!(matches!(told.status, 400 | 404), "{broken}: {told:?}");
    }
    assert_eq!(web.get("/api/v1/volumes/v0").status, 200);
}

#[test]
fn a_user_has_a_name_that_is_safe_everywhere() {
    let web = fixture(answer);
    for name in names() {
        let is_safe = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte));
        let token = web.ask("POST", "/api/v1/tokens", "", &json!({ "name": name, "role": "viewer" }).to_string());
        assert_eq!(token.status, if is_safe { 201 } else { 422 }, "{name:?}");
        if !is_safe {
            let user = json!({ "name": name, "role": "viewer", "password": PASSWORD }).to_string();
            assert_eq!(web.ask("POST", "/api/v1/users", "", &user).code(), (422, "account-invalid".into()), "{name:?}");
            let unknown = web.ask("DELETE", &format!("/api/v1/users/{}", escaped(&name)), "", "");
            assert_eq!(unknown.code(), (404, "account-unknown".into()), "{name:?}");
        }
    }
    let noted = web.desk.noted.lock().unwrap().join("\n");
    assert!(!noted.contains("%2e") && !noted.contains('\u{202e}'), "{noted}");
}
