use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sanwire_iscsi::ChapAlgorithm;

use super::*;
use crate::args::LogArgs;
use crate::failure::Misuse;

const FILE: &str = r#"
name = "box"
wire = ["hs-ip:0.0.0.0", "hs-eth:eth0"]
allow = ["10.0.0.0/8", "any"]
shards = 2
log = "debug"

[[volume]]
name = "disk0"
store = "ram:1G"
block = 4096

[[volume]]
name = "disk1"
store = "null:1T"
"#;

fn file(text: &str) -> anyhow::Result<FileConfig> {
    sanwire_store_file::register();
    file::parse(Path::new("/etc/sanwire.toml"), text)
}

fn refusal(text: &str) -> String {
    let error = file(text).expect_err(text);
    assert!(error.is::<Misuse>(), "exit code 2");
    error.to_string()
}

#[test]
fn the_command_line_adds_to_the_file_and_overrides_it() {
    let args = ServeArgs {
        volumes: vec!["disk2=ram:1M".parse().unwrap()],
        wires: vec!["hs-ip:[::1]".parse().unwrap()],
        name: Some("other".parse().unwrap()),
        key_file: Some("/k".into()),
        ..ServeArgs::default()
    };
    let config =
        ServeConfig::combine(file(FILE).unwrap(), args, LogArgs { level: Some(LogLevel::Error), format: None })
            .unwrap();
    let names: Vec<&str> = config.volumes.iter().map(|volume| &*volume.name).collect();
    assert_eq!(names, ["disk0", "disk1", "disk2"]);
    assert_eq!(config.wires.len(), 3);
    assert_eq!(config.name.as_str(), "other");
    assert_eq!((config.shards, config.log), (2, LogLevel::Error));
    assert_eq!(config.allow.rules().len(), 2);
    assert_eq!(config.make_directory, None);
}

#[test]
fn nothing_said_means_a_volume_of_one_gibibyte_on_loopback() {
    sanwire_store_file::register();
    let directory = Path::new("/home/a,b");
    let volume = defaults::volume(directory).unwrap();
    let file = sanwire_store::kind::Place::File(Path::new("/home/a,b/disk0.img"));
    assert_eq!((volume.store.backing.place(), volume.size_bytes()), (file, Some(1 << 30)));
    assert_eq!(Wire::default().to_string(), "hs-ip:127.0.0.1:5674");
}

#[test]
fn errors_point_at_file_and_line() {
    for (text, message) in [
        ("name = \"box\"\nspeed = 3\n", "/etc/sanwire.toml:2: unknown field `speed`"),
        ("wire = [\n  \"hs-ip:1.2.3.4\",\n  \"tcp:1.2.3.4\",\n]\n", "/etc/sanwire.toml:3: 'tcp:1.2.3.4' is no wire"),
        ("\nallow = [\"nobody\"]", "/etc/sanwire.toml:2: 'nobody' names nobody"),
        ("\n\nname = \"a b\"", "/etc/sanwire.toml:3: 'a b' is no server name"),
        ("shards = 0", "/etc/sanwire.toml:1: "),
        ("log = \"loud\"", "/etc/sanwire.toml:1: unknown variant `loud`"),
        ("name = ", "/etc/sanwire.toml:1: "),
        ("[[target]]\nname = 'disk0'\nlun.0 = 'a'", "/etc/sanwire.toml:2: 'disk0' is no iSCSI name"),
        ("[[target]]\nname = 'iqn.2026-11.org.x'\nlun.x = 'a'", "/etc/sanwire.toml:3: 'x' is no logical unit number"),
        (
            "[[target]]\nname = 'iqn.2026-11.org.x'\nlun.0 = 'a'\nchap = [{ user = 'u' }]",
            "/etc/sanwire.toml:4: CHAP user u: give either secret or secret-file",
        ),
        (
            "[[target]]\nname = 'iqn.2026-11.org.x'\nlun.0 = 'a'\nchap-algorithms = ['sha256']",
            "/etc/sanwire.toml:4: nobody is asked for CHAP here: give chap too",
        ),
        (
            "[[target]]\nname = 'iqn.2026-11.org.x'",
            "/etc/sanwire.toml:1: a target has volumes, or sends initiators elsewhere",
        ),
        (
            "[[target]]\nname = 'iqn.2026-11.org.x'\nredirect = 'iscsi://box'",
            "/etc/sanwire.toml:3: 'iscsi://box' is no portal",
        ),
        (
            "[[target]]\nname = 'iqn.2026-11.org.x'\nlun.0 = 'a'\nredirect-for-good = true",
            "/etc/sanwire.toml:4: redirect-for-good says how",
        ),
        (
            "[[target]]\nname='iqn.2026-11.org.x'\nlun.0='a'\n[[target]]\nname='IQN.2026-11.org.x'\nlun.0='a'",
            "/etc/sanwire.toml:4: the target iqn.2026-11.org.x stands in line 1 already",
        ),
        ("\n[[volume]]\nname = \"a\"\nstore = \"tape:1\"\n", "/etc/sanwire.toml:2: 'tape:1' is no store"),
        ("[[volume]]\nname = \"a\"\nstore = \"ram:1G\"\nspeed = 3\n", "/etc/sanwire.toml:4: unknown field `speed`"),
        (
            "[[volume]]\nname='a'\nstore='ram:1G'\n\n[[volume]]\nname='b'\nstore='tape:1'\n",
            "/etc/sanwire.toml:5: 'tape:1'",
        ),
        (
            "[[volume]]\nname='a'\nstore='ram:1G'\n[[volume]]\nname='a'\nstore='ram:2G'\n",
            "/etc/sanwire.toml:4: the volume a stands in line 1 already: remove one or change it",
        ),
        (
            "wire = ['hs-ip:1.2.3.4',\n'hs-ip:1.2.3.4:5674']",
            "/etc/sanwire.toml:2: the wire hs-ip:1.2.3.4:5674 stands in line 1 already",
        ),
    ] {
        let found = refusal(text);
        assert!(found.starts_with(message), "{text}\n{found}");
    }
}

#[test]
fn without_targets_each_volume_is_unit_zero_of_its_own() {
    let combine = |wires: &[&str]| {
        let wires = wires.iter().map(|wire| wire.parse().unwrap()).collect();
        let args = ServeArgs { wires, key_file: Some("/k".into()), ..ServeArgs::default() };
        ServeConfig::combine(file(FILE).unwrap(), args, LogArgs::default()).unwrap().targets
    };
    assert_eq!(combine(&[]), []);
    let targets = combine(&["iscsi:0.0.0.0"]);
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(names, ["iqn.2026-11.org.sanwire:disk0", "iqn.2026-11.org.sanwire:disk1"]);
    assert_eq!(targets[1].units.values().collect::<Vec<_>>(), ["disk1"]);
    assert_eq!(targets[0].allow.rules().len(), 2, "the rules of the server");
}

/// Writes the text to a file of this mode and reads it as a configuration.
fn read_file(label: &str, text: &str, mode: u32) -> anyhow::Result<FileConfig> {
    let path = std::env::temp_dir().join(format!("sanwire-{label}-{}", std::process::id()));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let found = file::read(&path);
    fs::remove_file(&path).unwrap();
    found
}

const TARGETS: &str = r#"
[[volume]]
name = "a"
store = "ram:1M"

[[target]]
name = "iqn.2026-11.org.example:one"
alias = "first"
lun = { 0 = "a", 7 = "b" }
allow = ["iqn.1993-08.org.debian:*", "10.0.0.0/8"]
chap = [{ user = "host", secret = "a secret of hosts" }]
mutual-chap = { user = "box", secret = "a secret of ours" }
chap-algorithms = ["sha3-256", "sha256"]
portal-groups = [1, 2]

[[target]]
name = "iqn.2026-11.org.example:two"
lun.3 = "a"

[[target]]
name = "iqn.2026-11.org.example:moved"
redirect = "[2001:db8::1]:3260,2"
redirect-for-good = true
"#;

#[test]
fn targets_are_what_the_file_says() {
    let config = read_file("targets", TARGETS, 0o600).unwrap();
    let args = || ServeArgs {
        volumes: vec!["b=ram:1M".parse().unwrap()],
        wires: vec!["iscsi:127.0.0.1".parse().unwrap()],
        allow: vec!["any".parse().unwrap()],
        key_file: Some("/k".into()),
        ..ServeArgs::default()
    };
    let targets = ServeConfig::combine(config, args(), LogArgs::default()).unwrap().targets;
    let [one, two, moved] = &targets[..] else { panic!("three targets") };
    assert_eq!((one.alias.as_str(), one.group_tags.as_slice()), ("first", &[1, 2][..]));
    let units: Vec<(u16, &str)> = one.units.iter().map(|(lun, volume)| (lun.number(), volume.as_str())).collect();
    assert_eq!(units, [(0, "a"), (7, "b")]);
    assert_eq!((one.allow.rules().len(), two.allow.rules().len()), (2, 1));
    assert_eq!((&two.redirect, &moved.redirect), (&None, &Some(("[2001:db8::1]:3260,2".to_owned(), true))));
    assert_eq!(one.authentication.users[0].name, "host");
    assert_eq!(one.authentication.mutual.as_ref().unwrap().name, "box");
    assert_eq!(one.authentication.algorithms, [ChapAlgorithm::Sha3, ChapAlgorithm::Sha256]);
    assert!(!format!("{one:?}").contains("a secret"), "secrets are not shown");
    for (list, message) in [("[]", "without an algorithm nobody"), ("['rot13']", "'rot13' is no algorithm of CHAP")] {
        let text = TARGETS.replace("[\"sha3-256\", \"sha256\"]", list);
        let error = read_file("targets-c", &text, 0o600).unwrap_err().to_string();
        assert!(error.contains(":13: ") && error.contains(message), "{error}");
    }
    let error = ServeConfig::combine(
        read_file("targets-b", TARGETS, 0o600).unwrap(),
        ServeArgs { volumes: vec![], ..args() },
        LogArgs::default(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("logical unit 7 is to be volume b, which is not served"), "{error}");
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    let readable = read_file("readable", TARGETS, 0o644).unwrap_err().to_string();
    assert!(readable.starts_with("others can read the configuration file with a secret"), "{readable}");
    assert!(readable.contains("(mode 644): chmod 600"), "{readable}");
    let secret = std::env::temp_dir().join(format!("sanwire-chap-{}", std::process::id()));
    let text = format!(
        "[[target]]\nname = 'iqn.2026-11.org.example:one'\nlun.0 = 'a'\nchap = [{{ user = 'u', secret-file = '{}' }}]",
        secret.display()
    );
    fs::write(&secret, "a secret of hosts\n").unwrap();
    for (mode, is_accepted) in [(0o600, true), (0o644, false), (0o640, false)] {
        fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(read_file("with-file", &text, 0o644).is_ok(), is_accepted, "{mode:o}");
    }
    fs::write(&secret, "short\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let short = read_file("short", &text, 0o644).unwrap_err().to_string();
    assert!(short.contains("CHAP user u: the secret is too short: use at least 12 bytes"), "{short}");
    fs::remove_file(&secret).unwrap();
}

#[test]
fn the_whole_is_checked() {
    let combine = |args: ServeArgs| {
        let error = ServeConfig::combine(file(FILE).unwrap(), args, LogArgs::default()).expect_err("refused");
        assert!(error.is::<Misuse>(), "exit code 2");
        error.to_string()
    };
    let volumes = vec!["disk1=ram:1M".parse().unwrap()];
    let twice = combine(ServeArgs { volumes, ..ServeArgs::default() });
    assert_eq!(twice, "two volumes are called disk1: give each a name of its own");
    let many = combine(ServeArgs {
        volumes: (0..16_382).map(|number| format!("v{number}=null:1G").parse().unwrap()).collect(),
        ..ServeArgs::default()
    });
    assert!(many.starts_with("16384 volumes are too many"), "{many}");
    let wires = vec!["hs-eth:eth0".parse().unwrap()];
    assert!(combine(ServeArgs { wires, ..ServeArgs::default() }).contains("hs-eth:eth0 is given twice"));
    let shards = std::num::NonZeroU16::new(2000);
    assert!(combine(ServeArgs { shards, ..ServeArgs::default() }).contains("2000 shards are too many"));
}

#[test]
fn a_password_is_the_first_line_of_a_file_that_only_its_owner_reads() {
    let path = std::env::temp_dir().join(format!("sanwire-password-{}", std::process::id()));
    let with = |content: &str, mode: u32| {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let result = read_password(&path).map(|password| String::from_utf8(password.as_bytes().to_vec()).unwrap());
        result.map_err(|error| error.to_string())
    };
    assert_eq!(with("secret word\r\nmore", 0o600).as_deref(), Ok("secret word"));
    assert_eq!(with("secret", 0o400).as_deref(), Ok("secret"));
    let readable = with("secret\n", 0o640).unwrap_err();
    assert!(readable.contains("(mode 640): chmod 600") && !readable.contains("secret"), "{readable}");
    assert!(with("\nsecret\n", 0o600).unwrap_err().contains("is empty"));
    assert!(with(&"x".repeat(1025), 0o600).unwrap_err().contains("too long"));
    fs::remove_file(&path).unwrap();
    assert!(read_password(&path).unwrap_err().to_string().contains("cannot read the password file"));
}

#[test]
fn clients_have_what_the_file_says() {
    let id = "a1".repeat(16);
    let text = format!(
        "[[client]]\nid = '{id}'\nname = 'alice'\nmanage = true\nvolumes = ['vm-*']\ncap = '10M'\nwindow = 64\n\
         [[client]]\nid = '{}'",
        "b0".repeat(16)
    );
    let clients = file(&text).unwrap().clients;
    let [alice, other] = &clients[..] else { panic!("two clients") };
    let alice = alice.resolve().unwrap();
    assert_eq!((alice.id.to_string(), alice.name.as_str(), alice.weight), (id.clone(), "alice", 1));
    assert!(alice.manage && !alice.read_only && alice.sees("vm-1") && !alice.sees("disk0") && alice.psk.is_none());
    assert_eq!((alice.cap_bytes_per_second, alice.window_packets), (Some(10 << 20), Some(64)));
    assert!(other.resolve().unwrap().sees("disk0"));
    for (text, message) in [
        ("[[client]]\nid = 'alice'".to_owned(), "/etc/sanwire.toml:2: 'alice' is no id of a client"),
        (format!("[[client]]\nid = '{id}'\nweight = 0"), "/etc/sanwire.toml:1: client"),
        (format!("[[client]]\nid = '{id}'\npassword-file = '/p'\nsecret-file = '/s'"), "/etc/sanwire.toml:1: client"),
        (format!("[[client]]\nid = '{id}'\nspeed = 1"), "/etc/sanwire.toml:3: unknown field `speed`"),
        (format!("[[client]]\nid = '{id}'\n[[client]]\nid = '{id}'"), "/etc/sanwire.toml:3: the client"),
        (text.replace("[[client]]\nid = 'b", "[[client]]\nname='alice'\nid = 'b"), "/etc/sanwire.toml:8: the name"),
    ] {
        let refusal = refusal(&text);
        assert!(refusal.starts_with(message), "{refusal}");
    }
}

#[test]
fn a_password_beside_an_open_iscsi_target_is_refused() {
    let password = std::env::temp_dir().join(format!("sanwire-open-{}", std::process::id()));
    fs::write(&password, "a secret of hosts\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let combine = |text: &str, wire: &str, is_guarded: bool| {
        let args = ServeArgs {
            wires: vec![wire.parse().unwrap()],
            password_file: is_guarded.then(|| password.clone()),
            key_file: Some("/k".into()),
            ..ServeArgs::default()
        };
        ServeConfig::combine(
            file(&format!("[[volume]]\nname='a'\nstore='ram:1M'\n{text}")).unwrap(),
            args,
            LogArgs::default(),
        )
    };
    let target = |keys: &str| format!("[[target]]\nname='iqn.2026-11.org.x'\nlun.0='a'\n{keys}");
    let chap = format!("chap = [{{ user = 'u', secret-file = '{}' }}]", password.display());
    for text in [String::new(), target("")] {
        let error = combine(&text, "iscsi:127.0.0.1", true).expect_err("open");
        assert!(error.is::<Misuse>(), "exit code 2");
        let error = error.to_string();
        assert!(error.contains("protects HyperSCSI only, and the iSCSI target iqn.2026-11.org"), "{error}");
        assert!(error.contains("chap = [] if it is meant to be open"), "{error}");
        combine(&text, "iscsi:127.0.0.1", false).expect("nothing was to be protected");
        combine(&text, "hs-ip:127.0.0.1", true).expect("no wire of iSCSI");
        for secret in ["password-file", "secret-file"] {
            let client = format!("{text}\n[[client]]\nid='{}'\n{secret}='{}'", "ab".repeat(16), password.display());
            let error = combine(&client, "iscsi:127.0.0.1", false).expect_err("open").to_string();
            assert!(error.contains("protects HyperSCSI only"), "{error}");
        }
    }
    combine(&target(&chap), "iscsi:127.0.0.1", true).expect("it has secrets of its own");
    combine(&target("chap = []"), "iscsi:127.0.0.1", true).expect("it is meant to be open");
    fs::remove_file(&password).unwrap();
}

#[test]
fn only_a_volume_that_is_there_can_be_renewed_or_adopted() {
    let combine = |renewed: &[&str], adopted: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        let (renewed, adopted) = (names(renewed), names(adopted));
        let args = ServeArgs { renewed, adopted, key_file: Some("/k".into()), ..ServeArgs::default() };
        ServeConfig::combine(file(FILE).unwrap(), args, LogArgs::default()).map_err(|error| error.to_string())
    };
    assert_eq!(combine(&["disk1"], &[]).unwrap().accepted.len(), 1);
    assert_eq!(combine(&[], &["disk1"]).unwrap().accepted.len(), 1);
    assert_eq!(combine(&["disk7"], &[]).unwrap_err(), "--renew disk7: no volume is called so");
    assert_eq!(combine(&[], &["disk7"]).unwrap_err(), "--adopt disk7: no volume is called so");
    assert!(combine(&["disk1"], &["disk1"]).unwrap_err().contains("either adopted"));
}

#[test]
fn pools_are_read_from_file_and_command_line_and_checked() {
    sanwire_store_file::register();
    let text = "[[pool]]\nname = \"fast\"\ndirectory = \"/nowhere/fast\"\nlimit = \"1T\"\n\n[[volume]]\nname = \"a\"\nstore = \"pool:\"\nsize = \"1G\"\n\
                [[volume]]\nname = \"b\"\nstore = \"pool:slow\"\nsize = \"1G\"\n";
    let file = file::parse(Path::new("f"), text).unwrap();
    let args = ServeArgs {
        pools: vec!["other=/nowhere/other".parse().unwrap()],
        key_file: Some("/k".into()),
        ..ServeArgs::default()
    };
    let config = ServeConfig::combine(file, args, LogArgs::default()).unwrap();
    assert_eq!(config.pools.iter().map(|pool| &*pool.name).collect::<Vec<_>>(), ["fast", "other"]);
    assert_eq!(config.pools[0].limit_bytes, Some(1 << 40));
    let obstacles = config.obstacles().join("\n");
    for part in [
        "pool fast: /nowhere/fast: No such file",
        "volume a: there is no default pool",
        "volume b: there is no pool called slow",
    ] {
        assert!(obstacles.contains(part), "{part}: {obstacles}");
    }
    for (text, part) in [
        ("[[pool]]\nname = \"a\"\ndirectory = \"x\"", "f:1: "),
        (
            "[[pool]]\nname = \"a\"\ndirectory = \"/x\"\n[[pool]]\nname = \"a\"\ndirectory = \"/y\"",
            "stands in line 1 already",
        ),
    ] {
        let error = file::parse(Path::new("f"), text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
