#!/bin/sh
# The gcloud command against the simulated Compute Engine: networks, firewall, a VM, a peering, NAT, a VPN, and away again.
# Usage: gcloud.sh URL, with `gcloud` in the PATH.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
echo ya29.x > "$home/token"
export CLOUDSDK_CONFIG="$home" CLOUDSDK_AUTH_ACCESS_TOKEN_FILE="$home/token" CLOUDSDK_CORE_PROJECT=p1 \
    CLOUDSDK_CORE_DISABLE_PROMPTS=1 CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true \
    CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK=true CLOUDSDK_COMPUTE_REGION=us-west1 \
    CLOUDSDK_COMPUTE_ZONE=us-west1-a CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE="$1/compute/v1/"
gce() { gcloud compute --quiet "$@" 2> "$home/said" || { cat "$home/said" >&2; echo "gcloud compute $* failed" >&2; exit 1; }; }
is() { # WANTED HAD
    [ "$1" = "$2" ] || { echo "wanted $1, had $2" >&2; exit 1; }
}
refused() { # WORDS COMMAND...
    words=$1
    shift
    if said=$(gcloud compute --quiet "$@" 2>&1); then echo "$* was not refused" >&2; exit 1; fi
    case $said in *"$words"*) ;; *) echo "wanted '$words': $said" >&2; exit 1 ;; esac
}

for n in 1 2; do
    gce networks create "net$n" --subnet-mode custom --bgp-routing-mode global > /dev/null
    gce networks subnets create "sub$n" --network "net$n" --range "10.$n.0.0/16" > /dev/null
done
refused 'already exists' networks create net1 --subnet-mode custom
refused 'was not found' networks describe net3
is 'net1 net2' "$(gce networks list --format 'value(name)' | sort | paste -sd' ')"
is sub2 "$(gce networks subnets list --filter 'network~net2$' --format 'value(name)')"
is GLOBAL "$(gce networks describe net1 --format 'value(routingConfig.routingMode)')"

gce firewall-rules create web --network net1 --allow tcp:80-90,icmp --source-ranges 10.2.0.0/16 --target-tags web > /dev/null
is INGRESS/1000 "$(gce firewall-rules describe web --format 'value[separator=/](direction,priority)')"
gce firewall-rules update web --source-ranges 10.2.0.0/24,10.3.0.0/24 > /dev/null
is '10.2.0.0/24;10.3.0.0/24' "$(gce firewall-rules list --filter 'name=web' --format 'value(sourceRanges.list(separator=";"))')"

gce instances create vm1 --subnet sub1 --machine-type e2-micro --image-project debian-cloud --image-family debian-12 \
    --no-address --tags web > /dev/null
is RUNNING/10.1.0.2 "$(gce instances describe vm1 --format 'value[separator=/](status,networkInterfaces[0].networkIP)')"
gce instances add-tags vm1 --tags ssh
is 'ssh;web' "$(gce instances describe vm1 --format 'value(tags.items.list(separator=";"))')"
gce instances remove-tags vm1 --tags ssh
gce instances add-labels vm1 --labels lab=gcloud
is vm1 "$(gce instances list --filter 'labels.lab=gcloud' --format 'value(name)')"
refused 'is already being used by' networks subnets delete sub1

gce networks peerings create p --network net1 --peer-network net2 > /dev/null
is INACTIVE "$(gce networks describe net1 --format 'value(peerings[0].state)')"
gce networks peerings create p --network net2 --peer-network net1 > /dev/null
is ACTIVE "$(gce networks describe net1 --format 'value(peerings[0].state)')"
is net2 "$(gce networks peerings list --network net1 --format 'value(peerings[0].network.basename())')"
gce networks peerings delete p --network net1
gce networks peerings delete p --network net2

gce routers create router --network net1 --asn 64514 > /dev/null
gce routers nats create nat --router router --auto-allocate-nat-external-ips --nat-all-subnet-ip-ranges
is nat "$(gce routers nats list --router router --format 'value(name)')"
gce routers nats delete nat --router router
gce vpn-gateways create gw --network net1 > /dev/null
is 2 "$(gce vpn-gateways describe gw --format 'value(vpnInterfaces.len())')"
gce external-vpn-gateways create ext --interfaces 0=52.1.2.3,1=52.1.2.4 > /dev/null
gce vpn-tunnels create tun --vpn-gateway gw --interface 0 --peer-external-gateway ext --peer-external-gateway-interface 0 \
    --router router --ike-version 2 --shared-secret secret > /dev/null
is NO_INCOMING_PACKETS "$(gce vpn-tunnels describe tun --format 'value(status)')"
gce routers add-interface router --interface-name if0 --vpn-tunnel tun --ip-address 169.254.21.2 --mask-length 30 > /dev/null
gce routers add-bgp-peer router --peer-name peer0 --interface if0 --peer-ip-address 169.254.21.1 --peer-asn 64999 > /dev/null
is peer0/DOWN "$(gce routers get-status router --format 'value[separator=/](result.bgpPeerStatus[0].name,result.bgpPeerStatus[0].status)')"
is tun "$(gce vpn-tunnels list --format 'value(name)')"
refused 'is already being used by' vpn-gateways delete gw

gce routers remove-bgp-peer router --peer-name peer0 > /dev/null
gce routers remove-interface router --interface-name if0 > /dev/null
gce vpn-tunnels delete tun
gce external-vpn-gateways delete ext
gce vpn-gateways delete gw
gce routers delete router
gce instances delete vm1
gce firewall-rules delete web
for n in 1 2; do
    gce networks subnets delete "sub$n"
    gce networks delete "net$n"
done
is '' "$(gce networks list --format 'value(name)')"
echo "$(gcloud --version | head -n 1) is content"
