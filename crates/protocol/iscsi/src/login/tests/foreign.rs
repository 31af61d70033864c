//! Initiators of others: what they say, and what they take for a failure.

use super::*;

#[test]
fn burst_lengths_that_initiators_offer_by_default_are_what_they_hear() {
    for offer in ["16776192", "16777215", "262144", "512"] {
        let mut server = server_with_seed(1);
        let text = format!("{}MaxBurstLength={offer}\0FirstBurstLength=262144\0", names());
        ask(&mut server, &OneTarget::default(), &request(1, Some(3)), &text);
        let admitted = admitted(&mut server);
        let answer = String::from_utf8(admitted.text).unwrap();
        assert!(answer.contains(&format!("MaxBurstLength={offer}\0")), "{answer}");
        assert_eq!(admitted.session.max_burst_bytes.to_string(), offer);
    }
}

/// As iscsi-client-rs logs in.
#[test]
fn an_initiator_may_name_its_method_in_the_operational_stage_where_nobody_must_show_who_it_is() {
    for method in ["None", "CHAP,None"] {
        let text = format!("{}AuthMethod={method}\0", names());
        let mut server = server_with_seed(1);
        ask(&mut server, &OneTarget::default(), &request(1, Some(3)), &text);
        let admitted = admitted(&mut server);
        assert!(String::from_utf8(admitted.text).unwrap().contains("AuthMethod=NotUnderstood\0"));
        assert_eq!(admitted.user, None);
        let mut directory = OneTarget::default();
        let secret = crate::chap::ChapSecret::new(b"the secret of a user".to_vec()).unwrap();
        directory.entry.authentication.users = vec![Credential { name: "user".to_owned(), secret }];
        assert_eq!(status_of(&directory, &request(1, Some(3)), &text), 0x0201, "where one must");
    }
    let twice = format!("{}AuthMethod=None\0AuthMethod=None\0", names());
    assert_eq!(status_of(&OneTarget::default(), &request(1, Some(3)), &twice), 0x0200);
    assert_eq!(status_of(&OneTarget::default(), &request(1, Some(3)), &(names() + "CHAP_A=5\0")), 0x0200);
}

/// What uiscsi offers: it takes any other answer than a value for a failure.
#[test]
fn keys_without_meaning_in_discovery_and_on_further_connections_are_answered_with_values() {
    let keys = "MaxConnections=4\0InitialR2T=No\0ImmediateData=Yes\0TaskReporting=RFC3720\0DefaultTime2Wait=3\0";
    let answered = |text: String, tsih: u16| {
        let mut server = server_with_seed(1);
        let request = LoginRequest { tsih, connection: 1, ..request(1, Some(3)) };
        ask(&mut server, &OneTarget::default(), &request, &text);
        let admitted = admitted(&mut server);
        (String::from_utf8(admitted.text).unwrap(), admitted.session.max_connections)
    };
    let (discovery, connections) = answered(format!("InitiatorName={INITIATOR}\0SessionType=Discovery\0{keys}"), 0);
    let expected = "InitialR2T=No\0ImmediateData=Yes\0TaskReporting=RFC3720\0DefaultTime2Wait=3\0";
    assert!(discovery.contains(&format!("MaxConnections=1\0{expected}")), "{discovery}");
    assert_eq!(connections, 1, "a discovery session has one");
    let (further, _) = answered(names() + keys, 0x4711);
    assert!(further.contains(&format!("MaxConnections=4\0{expected}")), "{further}");
}
