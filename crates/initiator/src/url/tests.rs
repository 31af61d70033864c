use super::*;

fn ip(host: &str, port: u16, volume: Option<&str>) -> Url {
    Url { server: Server::HyperScsi(HyperScsiServer::Ip { host: host.into(), port }), volume: volume.map(Into::into) }
}

fn ethernet(server: Station, volume: Option<&str>) -> Url {
    let server = Server::HyperScsi(HyperScsiServer::Ethernet { interface: Some("eth0.5".into()), server });
    Url { server, volume: volume.map(Into::into) }
}

#[test]
fn reads_both_wires_and_writes_them_again() {
    let mac = MacAddress([2, 0, 0x5e, 0x10, 0, 1]);
    for (text, url) in [
        ("hs+ip://127.0.0.1/disk0", ip("127.0.0.1", 5674, Some("disk0"))),
        ("hs+ip://storage.example:7000/a.b-c_d", ip("storage.example", 7000, Some("a.b-c_d"))),
        ("hs+ip://[fe80::1]/disk0", ip("fe80::1", 5674, Some("disk0"))),
        ("hs+ip://[::1]:99", ip("::1", 99, None)),
        ("hs+eth://eth0.5/box/disk0", ethernet(Station::Name("box".into()), Some("disk0"))),
        ("hs+eth://eth0.5/02:00:5e:10:00:01/disk0", ethernet(Station::Mac(mac), Some("disk0"))),
        ("hs+eth://eth0.5/box", ethernet(Station::Name("box".into()), None)),
    ] {
        assert_eq!(text.parse(), Ok(url.clone()), "{text}");
        assert_eq!(url.to_string(), text);
    }
    assert_eq!("hs+ip://a:5674/".parse(), Ok(ip("a", 5674, None)), "a slash alone names no volume");
}

#[test]
fn errors_say_what_is_expected() {
    for (text, part) in [
        (
            "disk0",
            "expected hs+ip://HOST[:5674]/VOLUME, hs+eth://[IF]/SERVER/VOLUME, iscsi://[USER@]HOST[:3260]/TARGET/LUN, iser://[USER@]HOST[:3260]/TARGET/LUN, aoe://[IF]/SHELF.SLOT, \
             hdsp://[IF]/SERVER/VOLUME, visa://HOST[:5675]/VOLUME or visa+tcp://HOST[:5675]/VOLUME",
        ),
        ("hdsp://eth0//a", "has no server: expected hdsp://[IF]/SERVER/VOLUME"),
        ("hdsp://eth0/box/a/b", "has a part too many"),
        ("hdsp://eth0/box/a b", "is no volume name"),
        ("hdsp://eth0/box/@255", "'@255' in 'hdsp://eth0/box/@255' is no disk address: expected @ and a number"),
        ("aoe://eth0/7", "'7' in 'aoe://eth0/7' is no AoE address: expected a shelf from 0 to 4094"),
        ("aoe://eth0/7.255", "is no AoE address"),
        ("aoe://eth0/7.3/0", "has a part too many: expected aoe://[IF]/SHELF.SLOT"),
        ("aoe://interface-too-long/7.3", "is no network interface"),
        ("nfs://a/b", "'nfs://a/b' is no volume URL"),
        ("iscsi://a/b", "'b' in 'iscsi://a/b' is no iSCSI target: expected a name like iqn."),
        ("iscsi://a/iqn.2026-11.org.sanwire:d/16384", "is no LUN: expected a number from 0 to 16383"),
        (
            "iscsi://a/iqn.2026-11.org.sanwire:d/disk0",
            "'disk0' in 'iscsi://a/iqn.2026-11.org.sanwire:d/disk0' is no LUN",
        ),
        ("iscsi://a//0", "has no target: expected iscsi://[USER@]HOST[:3260]/TARGET/LUN"),
        ("iscsi://a:0/", "'a:0' in 'iscsi://a:0/' is no host with a port: expected a number from 1 to 65535"),
        ("iscsi://fe80::1/", "an IPv6 address stands in brackets"),
        ("iscsi://[fe80::1/", "an IPv6 address in brackets, like [fe80::1]"),
        ("iscsi://@a/", "'' in 'iscsi://@a/' is no user name: expected letters a-z and A-Z, digits, '.', '_' and '-'"),
        ("iscsi://a/iqn.2026-11.org.sanwire:d/0/1", "a part too many: expected iscsi://[USER@]HOST[:3260]/TARGET/LUN"),
        ("iscsi://a:b@c/", "'a:b' in 'iscsi://a:b@c/' is no user name"),
        ("iscsi:///iqn.2026-11.org.sanwire:d/0", "is no host"),
        ("hs+ip://", "'' in 'hs+ip://' is no host"),
        ("hs+ip:///disk0", "is no host"),
        ("hs+ip://fe80::1/disk0", "an IPv6 address stands in brackets"),
        ("hs+ip://[fe80::1/disk0", "an IPv6 address in brackets, like [fe80::1]"),
        ("hs+ip://[::1]x/disk0", "a number from 1 to 65535"),
        ("hs+ip://a:0/disk0", "a number from 1 to 65535"),
        ("hs+ip://a:65536/disk0", "a number from 1 to 65535"),
        ("hs+ip://a/b/c", "has a part too many: expected hs+ip://HOST[:5674]/VOLUME"),
        ("hs+ip://a/b c", "'b c' in 'hs+ip://a/b c' is no volume name"),
        ("hs+eth://eth0", "has no server: expected hs+eth://[IF]/SERVER/VOLUME"),
        ("hs+eth:///", "has no server"),
        ("hs+eth://interface-too-long/box/a", "is no network interface"),
        ("hs+eth://eth0/b:x/a", "or a MAC like"),
        ("hs+eth://eth0/box/a/b", "has a part too many"),
    ] {
        let message = text.parse::<Url>().expect_err(text).to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn a_server_is_no_volume() {
    let url: Url = "hs+ip://box:99".parse().unwrap();
    let message = url.volume().unwrap_err().to_string();
    assert_eq!(message, "'hs+ip://box:99' names no volume: add /VOLUME (`sanwire ls hs+ip://box:99` lists them)");
    let target = "iscsi://box/iqn.2026-11.org.sanwire:d";
    for (text, missing) in [("iscsi://box", "/TARGET/LUN"), (target, "/LUN")] {
        let message = text.parse::<Url>().unwrap().volume().unwrap_err().to_string();
        assert_eq!(message, format!("'{text}' names no volume: add {missing} (`sanwire ls {text}` lists them)"));
    }
    assert_eq!("hs+ip://box/a".parse::<Url>().unwrap().volume(), Ok("a"));
}

#[test]
fn iscsi_urls_name_user_target_and_lun() {
    let url: Url = "iscsi://alice@[::1]:3261/iqn.2026-11.org.sanwire:disk0/7".parse().unwrap();
    let Server::Iscsi(IscsiServer { user, host, port, target, .. }) = &url.server else { panic!("iSCSI") };
    assert_eq!((user.as_deref(), &**host, *port), (Some("alice"), "::1", 3261));
    assert_eq!(target.as_ref().map(ToString::to_string).as_deref(), Some("iqn.2026-11.org.sanwire:disk0"));
    assert_eq!(url.volume(), Ok("7"));
    for text in ["iscsi://box", "iscsi://bob@box/iqn.2001-04.com.example", "iscsi://10.0.0.1/eui.0123456789abcdef/0"] {
        assert_eq!(text.parse::<Url>().unwrap().to_string(), text);
    }
}

#[test]
fn an_aoe_target_is_its_volume() {
    let url: Url = "aoe://eth0/7.3".parse().unwrap();
    let Server::Aoe(AoeServer { interface, address }) = &url.server else { panic!("AoE") };
    assert_eq!((interface.as_deref(), address.map(|at| (at.shelf, at.slot))), (Some("eth0"), Some((7, 3))));
    assert_eq!(url.volume(), Ok("7.3"));
    for text in ["aoe://eth0/7.3", "aoe:///0.0", "aoe://eth0", "aoe://"] {
        let url: Url = text.parse().unwrap();
        assert_eq!((url.to_string().as_str(), url.to_string().parse()), (text, Ok(url)));
    }
    let message = "aoe://eth0".parse::<Url>().unwrap().volume().unwrap_err().to_string();
    assert!(message.contains("add /SHELF.SLOT (`sanwire ls aoe://eth0` lists them)"), "{message}");
}

#[test]
fn a_server_without_an_interface_is_sought_on_all_of_them() {
    let url: Url = "hs+eth:///box/disk0".parse().unwrap();
    let server = HyperScsiServer::Ethernet { interface: None, server: Station::Name("box".into()) };
    assert_eq!(url, Url { server: Server::HyperScsi(server), volume: Some("disk0".into()) });
    assert_eq!(url.to_string(), "hs+eth:///box/disk0");
}

#[test]
fn an_hdsp_volume_has_a_name_or_an_address() {
    let url: Url = "hdsp://eth0/box/disk0".parse().unwrap();
    let server = HdspServer { interface: Some("eth0".into()), server: Station::Name("box".into()) };
    assert_eq!(url, Url { server: Server::Hdsp(server), volume: Some("disk0".into()) });
    for text in ["hdsp:///box/disk0", "hdsp://eth0/02:00:5e:10:00:01/@3", "hdsp://eth0/box", "hdsp://eth0", "hdsp://"] {
        let url: Url = text.parse().unwrap();
        assert_eq!((url.to_string().as_str(), url.to_string().parse()), (text, Ok(url)));
    }
    let message = "hdsp://eth0/box".parse::<Url>().unwrap().volume().unwrap_err().to_string();
    assert!(message.contains("add /VOLUME (`sanwire ls hdsp://eth0/box` lists them)"), "{message}");
}

#[test]
fn a_visa_server_is_reached_over_udp_or_tcp() {
    for (text, is_stream, port) in
        [("visa://box/disk0", false, 5675), ("visa+tcp://[fe80::1]:99/a", true, 99), ("visa://10.0.0.1", false, 5675)]
    {
        let url: Url = text.parse().unwrap();
        let Server::Visa(server) = &url.server else { panic!("{text}") };
        assert_eq!((server.is_stream, server.port, url.to_string().as_str()), (is_stream, port, text));
    }
    let message = "visa://box".parse::<Url>().unwrap().volume().unwrap_err().to_string();
    assert!(message.contains("add /VOLUME"), "{message}");
    let message = "visa://box/a/b".parse::<Url>().unwrap_err().to_string();
    assert!(message.contains("a part too many: expected visa://HOST[:5675]/VOLUME"), "{message}");
}
