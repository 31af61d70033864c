//! Requests as no program makes them: each is refused with a code, and the next one is answered.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::requests::usual;
use super::{exchange, exchange_bytes, request};

#[test]
fn methods_that_are_none_of_a_resource_are_refused() {
    let web = usual();
    for method in ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW", "get"] {
        let refused = web.ask(method, "/api/v1/server", "", "");
        assert_eq!(refused.code(), (405, "method-unknown".into()), "{method}");
        assert!(refused.header("allow").is_some_and(|allowed| allowed.contains("GET")), "{refused:?}");
    }
    let head = web.ask("HEAD", "/api/v1/server", "", "");
    assert_eq!((head.status, &*head.body), (200, ""));
    assert_eq!(web.asked().len(), 1, "nothing else was asked");
}

#[test]
fn names_of_every_kind_of_character_lead_nowhere_else() {
    let web = usual();
    for name in [
        "%00",
        "%0D%0A",
        "%2F",
        "%2e%2e",
        "..%2F..%2Fetc%2Fpasswd",
        "%25",
        "%C3%BC",
        "%F0%9F%92%BE",
        "%E2%80%AE",
        "a%20b",
        "'%22%3B--",
        "%3Cscript%3E",
        "*",
        "@",
        "a@b@c",
        "~",
        "%7F",
        "x".repeat(4000).as_str(),
    ] {
        let told = web.get(&format!("/api/v1/volumes/{name}"));
        assert_eq!(told.code(), (404, "volume-unknown".into()), "{name}");
        let removed = web.ask("DELETE", &format!("/api/v1/targets/{name}/units/0"), "", "");
        assert_eq!(removed.code(), (404, "target-unknown".into()), "{name}");
    }
    for name in ["%FF", "%C3", "%ED%A0%80"] {
        assert_eq!(web.get(&format!("/api/v1/volumes/{name}")).code(), (400, "request-invalid".into()), "{name}");
    }
    assert!(web.asked().iter().all(|request| !request.is_change()));
}

#[test]
fn bodies_in_other_encodings_are_refused() {
    let web = usual();
    let typed = |content_type: &str, body: &str| {
        web.ask("POST", "/api/v1/volumes", &format!("Content-Type: {content_type}\r\n"), body).code()
    };
    let body = r#"{"name":"n","store":"ram:1M"}"#;
    for content_type in
        ["text/json", "application/json2", "application/x-www-form-urlencoded", "multipart/form-data", ""]
    {
        assert_eq!(typed(content_type, body), (415, "content-type-unsupported".into()), "{content_type}");
    }
    assert_eq!(typed("application/json", "\u{feff}{}"), (400, "request-invalid".into()));
    assert_eq!(typed("application/json; charset=utf-8", body), (201, String::new()));
    web.desk.asked.lock().unwrap().clear();
    for charset in ["utf-16", "iso-8859-1", "\"utf-7\""] {
        let content_type = format!("application/json; a=b;Charset={charset}");
        assert_eq!(typed(&content_type, body), (415, "content-type-unsupported".into()), "{charset}");
    }
    let utf16: String = body.chars().flat_map(|letter| [letter, '\0']).collect();
    assert_eq!(typed("application/json", &utf16), (400, "request-invalid".into()));
    assert_eq!(web.asked(), []);
}

#[test]
fn bodies_that_are_packed_are_not_unpacked() {
    let web = usual();
    // 64 KiB that would be 64 MiB; gzip's, and what only says that it is.
    let bomb = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0; 4096]].concat();
    let post = |coding: &str, body: &[u8]| {
        let head = format!(
            "POST /api/v1/volumes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{coding}\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        exchange_bytes(UnixStream::connect(web.socket()).unwrap(), &[head.as_bytes(), body].concat()).code()
    };
    let plain = br#"{"name":"n","store":"ram:1M"}"#;
    for coding in ["gzip", "deflate", "br", "zstd", "x-odd", "identity, gzip"] {
        let coding = format!("Content-Encoding: {coding}\r\n");
        for body in [&bomb[..], plain] {
            assert_eq!(post(&coding, body), (415, "content-type-unsupported".into()), "{coding}");
        }
    }
    assert_eq!(post("", &bomb), (400, "request-invalid".into()));
    let latin: &[u8] = b"{\"name\":\"\xfc\",\"store\":\"ram:1M\"}";
    for body in [latin, b"{\"name\":\"\xed\xa0\x80\"}", b"{\"name\":\"\\ud800\"}", b"{\"name\":\"\xc0\xaf\"}", b"\0"] {
        assert_eq!(post("", body), (400, "request-invalid".into()), "{body:?}");
    }
    assert_eq!(web.asked(), []);
    assert_eq!(post("Content-Encoding: identity\r\n", plain).0, 201);
}

#[test]
fn requests_whose_length_is_in_doubt_are_refused() {
    let web = usual();
    let by = |text: &str| exchange(TcpStream::connect(web.port()).unwrap(), text).status;
    let head = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    // What follows would be another request, for who believes the other length.
    let smuggled = request("GET", "/healthz", "", "");
    for lengths in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
    ] {
        assert_eq!(by(&format!("{head}{lengths}\r\n{smuggled}")), 400, "{lengths}");
    }
    for chunk in ["x\r\n", "-1\r\n", "fffffffffffffffff\r\n"] {
        assert_eq!(by(&format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}")), 400, "{chunk}");
    }
    assert_eq!(web.get("/healthz").status, 200);
}
