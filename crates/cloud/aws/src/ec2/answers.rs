//! EC2's XML into types. What is missing or mistyped is told by its path: `vpcSet.item[2].vpcId`. Pure.

use std::{fmt, marker::PhantomData, ops::Deref};

use cloud_http::{Failure, Reply};
use quick_xml::{Reader, events::Event};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, Visitor},
};

use crate::kinds::Ec2Kind;

/// A list: `<item>`s in an element, which is empty or absent where there are none.
#[derive(Clone, Debug)]
pub(crate) struct List<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Items<T> {
            #[serde(rename = "item", default = "Vec::new")]
            items: Vec<T>,
        }
        // An option is what a field that is absent can be read as.
        Ok(Self(Option::<Items<T>>::deserialize(deserializer)?.map_or_else(Vec::new, |list| list.items)))
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// An answer in which nothing is of interest.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Done {}

/// An answer about objects of one kind, by the names that the kind has for a list and for one.
#[derive(Debug)]
pub(crate) struct Answer<K> {
    pub(crate) listed: Vec<K>,
    pub(crate) next_token: Option<String>,
    one: Option<K>,
}

/// An answer that is about one object, by the name that its kind has for one.
#[derive(Debug)]
pub(crate) struct Made<K>(pub(crate) K);

impl<'de, K: Ec2Kind> Deserialize<'de> for Answer<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<K>(PhantomData<K>);

        impl<'de, K: Ec2Kind> Visitor<'de> for Elements<K> {
            type Value = Answer<K>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} or {}", K::LIST, K::ELEMENT)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Answer<K>, A::Error> {
                let mut answer = Answer { listed: Vec::new(), next_token: None, one: None };
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        name if name == K::LIST => answer.listed = map.next_value::<List<K>>()?.0,
                        name if name == K::ELEMENT => answer.one = Some(map.next_value()?),
                        "nextToken" => {
                            answer.next_token =
                                Some(map.next_value()?).filter(|text: &String| !text.is_empty());
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(answer)
            }
        }
        deserializer.deserialize_map(Elements(PhantomData))
    }
}

impl<'de, K: Ec2Kind> Deserialize<'de> for Made<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if K::ELEMENT.is_empty() {
            return K::deserialize(deserializer).map(Made);
        }
        let answer = Answer::<K>::deserialize(deserializer)?;
        answer.one.map(Made).ok_or_else(|| D::Error::missing_field(K::ELEMENT))
    }
}

/// The name of the root element. None if it is not XML, or not all of it.
pub(super) fn root(text: &str) -> Option<String> {
    let mut reader = Reader::from_str(text);
    let (mut root, mut depth) = (None, 0_usize);
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                depth += 1;
                root.get_or_insert_with(|| String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
            }
            // The reader has checked that it ends what began.
            Event::End(_) => depth = depth.checked_sub(1)?,
            Event::Eof => return root.filter(|_| depth == 0),
            _ => {}
        }
    }
}

pub(super) fn read<T: DeserializeOwned>(action: &str, reply: &Reply) -> Result<T, Failure> {
    let unreadable = |message: String| Failure::Unreadable { operation: format!("ec2:{action}"), message };
    let text = reply.text();
    let wanted = format!("{action}Response");
    match root(&text) {
        Some(found) if found == wanted => {}
        found => {
            return Err(unreadable(format!(
                "it is {}, not a {wanted}",
                found.as_deref().unwrap_or("no XML")
            )));
        }
    }
    let mut reader = quick_xml::de::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(&mut reader)
        .map_err(|err| unreadable(format!("{wanted}.{}: {}", err.path(), err.inner())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{Subnet, Vpc, VpnConnection};

    fn ask<T: DeserializeOwned>(action: &str, inside: &str) -> Result<T, String> {
        let body = format!(
            "<?xml version=\"1.0\"?>\n<{action}Response xmlns=\"x\"><requestId>r</requestId>{inside}</{action}Response>\n"
        );
        let reply = Reply { status: 200, headers: Default::default(), body: body.into() };
        read(action, &reply).map_err(|failure| failure.to_string())
    }

    const SUBNET: &str = "<subnetId>subnet-1</subnetId><availabilityZone>eu-west-1a</availabilityZone>";

    #[test]
    fn lists_empty_elements_and_entities_are_read() {
        let two = format!(
            "<subnetSet>\n <item>{SUBNET}<tagSet><item><key>a</key><value>x &amp; y</value></item><item><key>b</key><value/></item></tagSet></item>\
             <item>{SUBNET}<tagSet/><new><item>1</item></new></item></subnetSet><nextToken>t</nextToken>"
        );
        let answer: Answer<Subnet> = ask("DescribeSubnets", &two).unwrap();
        assert_eq!((answer.listed.len(), answer.next_token.as_deref()), (2, Some("t")));
        let tags: Vec<_> = answer.listed[0].tag_set.iter().map(|tag| (&*tag.key, &*tag.value)).collect();
        assert_eq!(tags, [("a", "x & y"), ("b", "")]);
        for none in ["<subnetSet/>", "<subnetSet></subnetSet>", "", "<subnetSet/><nextToken/>"] {
            let answer: Answer<Subnet> = ask("DescribeSubnets", none).unwrap();
            assert!(answer.listed.is_empty() && answer.next_token.is_none(), "{none}");
        }
    }

    #[test]
    fn an_empty_address_is_none_and_a_wrong_one_an_error() {
        let with = |address: &str| {
            let tunnel = format!("<tunnelOptionSet><item>{address}</item></tunnelOptionSet>");
            let connection =
                format!("<vpnConnectionId>v</vpnConnectionId><state>x</state><options>{tunnel}</options>");
            ask::<Made<VpnConnection>>(
                "CreateVpnConnection",
                &format!("<vpnConnection>{connection}</vpnConnection>"),
            )
            .map(|one| one.0.options.unwrap().tunnel_option_set[0].outside_ip_address)
        };
        assert_eq!(with(""), Ok(None));
        assert_eq!(with("<outsideIpAddress/>"), Ok(None));
        assert_eq!(with("<outsideIpAddress>192.0.2.1</outsideIpAddress>"), Ok(Some([192, 0, 2, 1].into())));
        let wrong = with("<outsideIpAddress>192.0.2</outsideIpAddress>").unwrap_err();
        assert!(wrong.contains("vpnConnection.options.tunnelOptionSet.item[0].outsideIpAddress"), "{wrong}");
    }

    #[test]
    fn what_is_missing_or_mistyped_is_told_by_its_path() {
        let missing =
            format!("<subnetSet><item>{SUBNET}</item><item><subnetId>s</subnetId></item></subnetSet>");
        let err = ask::<Answer<Subnet>>("DescribeSubnets", &missing).unwrap_err();
        assert!(err.contains("ec2:DescribeSubnets") && err.contains("subnetSet.item[1]"), "{err}");
        assert!(err.contains("availabilityZone"), "{err}");
        let mistyped = "<vpc><vpcId>vpc-1</vpcId><cidrBlock>10.0.0.0</cidrBlock></vpc>";
        let err = ask::<Made<Vpc>>("CreateVpc", mistyped).unwrap_err();
        assert!(err.contains("vpc.cidrBlock"), "{err}");
        let err = ask::<Made<Vpc>>("CreateVpc", "<subnet/>").unwrap_err();
        assert!(err.contains("missing field `vpc`"), "{err}");
    }

    #[test]
    fn another_answer_than_the_one_asked_for_is_no_empty_list() {
        let reply =
            |body: &'static str| Reply { status: 200, headers: Default::default(), body: body.into() };
        for body in ["<html><p>hello</p></html>", "<DescribeVpcsResponse/>", "{}", ""] {
            assert!(read::<Answer<Subnet>>("DescribeSubnets", &reply(body)).is_err(), "{body}");
        }
        let cut = "<DescribeSubnetsResponse><subnetSet><item><subnetId>s</subnetId>";
        assert!(read::<Answer<Subnet>>("DescribeSubnets", &reply(cut)).is_err());
    }
}
