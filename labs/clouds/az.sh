#!/bin/sh
# The az command against the simulated Azure: networks, a security group, a VM, a peering, NAT, a VPN gateway with a
# connection, a managed cluster, and away again. Usage: az.sh URL, with `az`, `python3` and `openssl` in the PATH.
set -eu
home=$(mktemp -d)
cd "$(dirname "$0")"
# az talks to nobody without TLS.
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout "$home/key" -out "$home/cert" 2> /dev/null
: > "$home/front"
python3 tls.py "$1" "$home/cert" "$home/key" > "$home/front" &
front=$!
trap 'kill "$front"; rm -rf "$home"' EXIT
for _ in $(seq 50); do
    grep -q '^https' "$home/front" && break
    sleep 0.1
done
url=$(cat "$home/front")
export AZURE_CONFIG_DIR="$home/az" REQUESTS_CA_BUNDLE="$home/cert" AZURE_CORE_INSTANCE_DISCOVERY=false \
    AZURE_CORE_COLLECT_TELEMETRY=false AZURE_CORE_NO_COLOR=true AZURE_CORE_ONLY_SHOW_ERRORS=true AZURE_EXTENSION_USE_DYNAMIC_INSTALL=no
run() { az "$@" > "$home/out" 2> "$home/said" || { cat "$home/said" >&2; echo "az $* failed" >&2; exit 1; }; }
get() { # QUERY COMMAND...
    query=$1
    shift
    az "$@" --query "$query" --output tsv
}
is() { # WANTED HAD
    [ "$1" = "$2" ] || { echo "wanted $1, had $2" >&2; exit 1; }
}
refused() { # CODE COMMAND...
    code=$1
    shift
    if said=$(az "$@" 2>&1); then echo "$* was not refused" >&2; exit 1; fi
    case $said in *"$code"*) ;; *) echo "wanted $code: $said" >&2; exit 1 ;; esac
}

run cloud register --name sim --endpoint-resource-manager "$url" --endpoint-active-directory "$url" \
    --endpoint-active-directory-resource-id https://management.azure.com/
run cloud set --name sim
refused AADSTS7000215 login --service-principal --username app --password wrong --tenant t1
run login --service-principal --username app --password secret --tenant t1
run config set defaults.group=g1 defaults.location=westus2
run group create --name g1
is westus2 "$(get location group show --name g1)"

cd "$home"
for n in 1 2; do
    run network vnet create --name "v$n" --address-prefixes "10.$n.0.0/16" --subnet-name default --subnet-prefixes "10.$n.0.0/24"
done
is 'v1 v2' "$(get '[].name' network vnet list | paste -sd' ')"
refused ResourceNotFound network vnet show --name v3
run network vnet subnet create --vnet-name v1 --name two --address-prefixes 10.1.1.0/24
refused NetcfgSubnetRangesOverlap network vnet subnet create --vnet-name v1 --name three --address-prefixes 10.1.1.0/25
run network vnet subnet delete --vnet-name v1 --name two
run network vnet update --name v1 --set tags.lab=az
is v1 "$(get "[?tags.lab=='az'].name" network vnet list)"

run network nsg create --name nsg
run network nsg rule create --nsg-name nsg --name web --priority 100 --protocol Tcp --destination-port-ranges 80-90 443 \
    --source-address-prefixes 10.2.0.0/16 10.3.0.1/32
refused SecurityRuleConflict network nsg rule create --nsg-name nsg --name more --priority 100 --destination-port-ranges 22
run network nsg rule update --nsg-name nsg --name web --priority 110
is 110 "$(get priority network nsg rule show --nsg-name nsg --name web)"
is 7 "$(get 'length(@)' network nsg rule list --nsg-name nsg --include-default)"
run network nic create --name nic --vnet-name v1 --subnet default --network-security-group nsg
is 10.1.0.4 "$(get 'ipConfigurations[0].privateIPAddress' network nic show --name nic)"
run vm create --name vm --nics nic --image Debian:debian-12:12:latest --size Standard_B1s --admin-username me \
    --authentication-type password --admin-password 'a-Long-0ne-please'
is Succeeded "$(get provisioningState vm show --name vm)"
is vm "$(get '[].name' vm list)"
refused InUseNetworkSecurityGroupCannotBeDeleted network nsg delete --name nsg

run network vnet peering create --vnet-name v1 --name p --remote-vnet v2 --allow-vnet-access
is Initiated "$(get peeringState network vnet peering show --vnet-name v1 --name p)"
run network vnet peering create --vnet-name v2 --name p --remote-vnet v1 --allow-vnet-access
is Connected "$(get peeringState network vnet peering show --vnet-name v1 --name p)"
run network vnet peering delete --vnet-name v1 --name p
run network vnet peering delete --vnet-name v2 --name p

for ip in natip gw0; do
    run network public-ip create --name "$ip" --sku Standard --allocation-method Static --zone 1 2 3
done
run network nat gateway create --name nat --public-ip-addresses natip
run network vnet subnet update --vnet-name v1 --name default --nat-gateway nat
refused InUseNatGatewayCannotBeDeleted network nat gateway delete --name nat
run network vnet subnet update --vnet-name v1 --name default --remove natGateway
run network nat gateway delete --name nat

run network vnet subnet create --vnet-name v2 --name GatewaySubnet --address-prefixes 10.2.255.0/27
run network vnet-gateway create --name gw --vnet v2 --public-ip-addresses gw0 --gateway-type Vpn --vpn-type RouteBased \
    --sku VpnGw1AZ --asn 64514 --no-wait
run network vnet-gateway wait --name gw --created --interval 2
is 64514 "$(get bgpSettings.asn network vnet-gateway show --name gw)"
run network local-gateway create --name lng --gateway-ip-address 52.1.2.3 --asn 64999 --bgp-peering-address 169.254.21.1
run network vpn-connection create --name con --vnet-gateway1 gw --local-gateway2 lng --shared-key secret1 --enable-bgp
is secret1 "$(get value network vpn-connection shared-key show --connection-name con)"
run network vpn-connection shared-key update --connection-name con --value secret2
is secret2 "$(get value network vpn-connection shared-key show --connection-name con)"
is con "$(get '[].name' network vpn-connection list)"
refused InUseResourceCannotBeDeleted network vnet-gateway delete --name gw
run network vpn-connection delete --name con
run network local-gateway delete --name lng
run network vnet-gateway delete --name gw
run network public-ip delete --name gw0
run network public-ip delete --name natip
run vm delete --name vm --yes
run network nic delete --name nic
run network nsg delete --name nsg
for n in 1 2; do run network vnet delete --name "v$n"; done
is '' "$(get '[].name' network vnet list)"

# `aks create` would ask for roles and for what nodes may be; the request it sends in the end is this one.
run network vnet create --name v4 --address-prefixes 10.4.0.0/17 --subnet-name default --subnet-prefixes 10.4.0.0/17
subnet=$(get id network vnet subnet show --vnet-name v4 --name default)
cat > cluster << END
{"location": "westus2", "identity": {"type": "SystemAssigned"}, "properties": {"dnsPrefix": "k",
 "agentPoolProfiles": [{"name": "nodes", "mode": "System", "count": 1, "vmSize": "Standard_D2s_v5", "vnetSubnetID": "$subnet"}],
 "networkProfile": {"networkPlugin": "azure", "serviceCidr": "10.4.128.0/17", "dnsServiceIP": "10.4.128.10"},
 "apiServerAccessProfile": {"enablePrivateCluster": true}}}
END
run rest --method put --body @cluster \
    --url "$url${subnet%/Microsoft.Network*}/Microsoft.ContainerService/managedClusters/k?api-version=2024-09-01"
run aks wait --name k --created --interval 2
is k "$(get '[].name' aks list)"
is 'Succeeded true' "$(get '[provisioningState, apiServerAccessProfile.enablePrivateCluster]' aks show --name k | paste -sd' ')"
refused InUseSubnetCannotBeDeleted network vnet delete --name v4
run aks delete --name k --yes
is '' "$(get '[].name' aks list)"
run network vnet delete --name v4
echo "az $(az version --query '"azure-cli"' --output tsv) is content"
