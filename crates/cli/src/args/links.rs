//! Which links of a connection are used, as it is written on the command line.

use std::str::FromStr;

use sanwire_initiator::Links;

/// Which links a connection has.
#[derive(Clone, Debug)]
pub(crate) struct LinkChoice(pub(crate) Links);

impl FromStr for LinkChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let most = Links::default().max;
        match text.parse() {
            Ok(max) if (1..=most).contains(&max) => Ok(LinkChoice(Links { max, interfaces: None })),
            Ok(_) => Err(format!("a connection has 1 to {most} links")),
            Err(_) => {
                let interfaces = text.split(',').map(str::to_owned).collect();
                Ok(LinkChoice(Links { max: most, interfaces: Some(interfaces) }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_a_number_or_the_names_of_interfaces() {
        let read = |text: &str| text.parse::<LinkChoice>().map(|choice| choice.0);
        assert_eq!(read("2"), Ok(Links { max: 2, interfaces: None }));
        assert_eq!(read("eth1,eth2").unwrap().interfaces, Some(vec!["eth1".to_owned(), "eth2".to_owned()]));
        assert!(read("0").is_err() && read("9").is_err());
    }
}
