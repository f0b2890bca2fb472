#!/bin/sh
# The aws command against the simulated EC2: a network in two zones on a transit gateway, an instance, its groups.
# Usage: aws-cli.sh URL, with `aws` in the PATH.
set -eu
export AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x AWS_DEFAULT_REGION=us-east-1 AWS_ENDPOINT_URL_EC2="$1" AWS_PAGER=''
ec2() { aws ec2 --output text "$@"; }
is() { # WANTED HAD
    [ "$1" = "$2" ] || { echo "wanted $1, had $2" >&2; exit 1; }
}
refused() { # CODE COMMAND...
    code=$1
    shift
    if said=$(ec2 "$@" 2>&1); then echo "$* was not refused" >&2; exit 1; fi
    case $said in *"($code)"*) ;; *) echo "wanted $code: $said" >&2; exit 1 ;; esac
}
until_is() { # WANTED COMMAND...
    wanted=$1
    shift
    for _ in $(seq 100); do
        [ "$(ec2 "$@")" = "$wanted" ] && return
        sleep 0.2
    done
    echo "never $wanted: $*" >&2
    exit 1
}

vpc=$(ec2 create-vpc --cidr-block 10.0.0.0/16 --query Vpc.VpcId \
    --tag-specifications 'ResourceType=vpc,Tags=[{Key=lab,Value=cli}]')
is "$vpc" "$(ec2 describe-tags --filters Name=key,Values=lab Name=value,Values=cli --query 'Tags[].ResourceId')"
a=$(ec2 create-subnet --vpc-id "$vpc" --cidr-block 10.0.0.0/24 --availability-zone us-east-1a --query Subnet.SubnetId)
b=$(ec2 create-subnet --vpc-id "$vpc" --cidr-block 10.0.1.0/24 --availability-zone us-east-1b --query Subnet.SubnetId)
is 2 "$(ec2 describe-subnets --filters "Name=vpc-id,Values=$vpc" --query 'length(Subnets)')"

tgw=$(ec2 create-transit-gateway --options AmazonSideAsn=64600 --query TransitGateway.TransitGatewayId)
until_is available describe-transit-gateways --transit-gateway-ids "$tgw" --query 'TransitGateways[0].State'
attachment=$(ec2 create-transit-gateway-vpc-attachment --transit-gateway-id "$tgw" --vpc-id "$vpc" --subnet-ids "$a" \
    --query TransitGatewayVpcAttachment.TransitGatewayAttachmentId)
state='TransitGatewayVpcAttachments[0].State'
until_is available describe-transit-gateway-vpc-attachments --transit-gateway-attachment-ids "$attachment" --query "$state"
ec2 modify-transit-gateway-vpc-attachment --transit-gateway-attachment-id "$attachment" --add-subnet-ids "$b" > /dev/null
until_is available describe-transit-gateway-vpc-attachments --transit-gateway-attachment-ids "$attachment" --query "$state"
is 2 "$(ec2 describe-transit-gateway-vpc-attachments --query 'length(TransitGatewayVpcAttachments[0].SubnetIds)')"

one=$(ec2 create-security-group --group-name one --description one --vpc-id "$vpc" --query GroupId)
two=$(ec2 create-security-group --group-name two --description two --vpc-id "$vpc" --query GroupId)
ec2 authorize-security-group-ingress --group-id "$one" --protocol tcp --port 22 --cidr 10.9.0.0/16 > /dev/null
refused InvalidPermission.Duplicate authorize-security-group-ingress --group-id "$one" --protocol tcp --port 22 --cidr 10.9.0.0/16
vm=$(ec2 run-instances --image-id ami-1 --instance-type t3.micro --subnet-id "$b" --security-group-ids "$one" \
    --query 'Instances[0].InstanceId')
until_is running describe-instances --instance-ids "$vm" --query 'Reservations[0].Instances[0].State.Name'
eni=$(ec2 describe-network-interfaces --query 'NetworkInterfaces[0].NetworkInterfaceId')
ec2 modify-network-interface-attribute --network-interface-id "$eni" --groups "$one" "$two"
is "one	two" "$(ec2 describe-instances --instance-ids "$vm" --query 'Reservations[0].Instances[0].SecurityGroups[].GroupName')"
refused InvalidGroup.NotFound modify-network-interface-attribute --network-interface-id "$eni" --groups sg-0

ec2 terminate-instances --instance-ids "$vm" > /dev/null
until_is terminated describe-instances --instance-ids "$vm" --query 'Reservations[0].Instances[0].State.Name'
is 0 "$(ec2 describe-network-interfaces --query 'length(NetworkInterfaces)')"
ec2 delete-security-group --group-id "$one" > /dev/null
ec2 delete-security-group --group-id "$two" > /dev/null
ec2 delete-transit-gateway-vpc-attachment --transit-gateway-attachment-id "$attachment" > /dev/null
until_is deleted describe-transit-gateway-vpc-attachments --transit-gateway-attachment-ids "$attachment" --query "$state"
ec2 delete-transit-gateway --transit-gateway-id "$tgw" > /dev/null
ec2 delete-subnet --subnet-id "$a"
ec2 delete-subnet --subnet-id "$b"
ec2 delete-vpc --vpc-id "$vpc"
echo "$(aws --version) is content"
