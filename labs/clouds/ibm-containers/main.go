// IBM's bluemix-go against the simulated Kubernetes Service: a cluster is made, looked at, listed and deleted.
//
//	ibm-containers URL    where the simulators are
//
// What a cluster stands in (VPC, prefix, subnet, security group) is made by plain requests: that API has clients of its
// own, which ibm.py drives.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	bluemix "github.com/IBM-Cloud/bluemix-go"
	"github.com/IBM-Cloud/bluemix-go/api/container/containerv2"
	"github.com/IBM-Cloud/bluemix-go/bmxerror"
	"github.com/IBM-Cloud/bluemix-go/session"
)

const patience = 300

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// vpc sends one request to the simulated VPC API.
func vpc(url, method, path string, body any) (map[string]any, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("%s/v1/%s?version=2026-09-15&generation=2", url, path)
	request, err := http.NewRequest(method, address, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer x")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	var found map[string]any
	if method == http.MethodDelete {
		return nil, nil
	}
	return found, json.NewDecoder(answer.Body).Decode(&found)
}

// until asks again until it is so.
func until(what string, look func() (bool, error)) error {
	for range patience {
		done, err := look()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if done {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("%s does not come", what)
}

// status is that of a refusal; 0 if it is none.
func status(err error) int {
	var refusal bmxerror.RequestFailure
	if errors.As(err, &refusal) {
		return refusal.StatusCode()
	}
	return 0
}

func run(url string) error {
	zone := map[string]any{"name": "us-south-1"}
	network, err := vpc(url, "POST", "vpcs", map[string]any{"name": "net", "address_prefix_management": "manual"})
	if err != nil {
		return err
	}
	home := map[string]any{"id": network["id"]}
	prefix := map[string]any{"name": "p", "cidr": "10.0.0.0/18", "zone": zone}
	if _, err := vpc(url, "POST", fmt.Sprintf("vpcs/%s/address_prefixes", network["id"]), prefix); err != nil {
		return err
	}
	subnet, err := vpc(url, "POST", "subnets", map[string]any{"name": "s", "vpc": home, "zone": zone, "ipv4_cidr_block": "10.0.0.0/24"})
	if err != nil {
		return err
	}
	group, err := vpc(url, "POST", "security_groups", map[string]any{"name": "closed", "vpc": home, "rules": []any{}})
	if err != nil {
		return err
	}
	if err := until("the subnet", func() (bool, error) {
		found, err := vpc(url, "GET", fmt.Sprintf("subnets/%s", subnet["id"]), nil)
		return err == nil && found["status"] == "available", err
	}); err != nil {
		return err
	}
	containers := url + "/global"
	delay, retries := 100*time.Millisecond, 1
	connection, err := session.New(&bluemix.Config{
		BluemixAPIKey: "any-key", Region: "us-south", Endpoint: &containers, TokenProviderEndpoint: &url,
		RetryDelay: &delay, MaxRetries: &retries,
	})
	if err != nil {
		return err
	}
	service, err := containerv2.New(connection)
	if err != nil {
		return err
	}
	return clusters(service.Clusters(), network["id"].(string), subnet["id"].(string), group["id"].(string))
}

func clusters(clusters containerv2.Clusters, network, subnet, group string) error {
	target := containerv2.ClusterTargetHeader{ResourceGroup: "group-1", Provider: "vpc-gen2"}
	wanted := containerv2.ClusterCreateRequest{
		Name: "sim", Provider: "vpc-gen2", KubeVersion: "1.33.5", DisablePublicServiceEndpoint: true,
		SecurityGroupIDs: []string{"cluster", group},
		WorkerPools: containerv2.WorkerPoolConfig{CommonWorkerPoolConfig: containerv2.CommonWorkerPoolConfig{
			Name: "default", Flavor: "bx2.4x16", WorkerCount: 2, VpcID: network,
			Zones: []containerv2.Zone{{ID: "us-south-1", SubnetID: subnet}},
		}},
	}
	made, err := clusters.Create(wanted, target)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := clusters.Create(wanted, target); status(err) != 409 {
		return fmt.Errorf("a second one of the name: %v", err)
	}
	nowhere := wanted
	nowhere.Name, nowhere.WorkerPools.VpcID = "nowhere", "r006-none"
	if _, err := clusters.Create(nowhere, target); status(err) != 400 {
		return fmt.Errorf("in no VPC: %v", err)
	}
	if err := until("the cluster", func() (bool, error) {
		found, err := clusters.GetCluster("sim", target)
		return err == nil && found.State == "normal", err
	}); err != nil {
		return err
	}
	found, err := clusters.GetCluster(made.ID, target)
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	if found.ResourceGroupID != "group-1" || found.WorkerCount != 2 || found.ServiceEndpoints.PublicServiceEndpointEnabled ||
		len(found.Vpcs) != 1 || found.Vpcs[0] != network {
		return fmt.Errorf("get: %+v", found)
	}
	all, err := clusters.List(target)
	if err != nil || len(all) != 1 || all[0].ID != made.ID {
		return fmt.Errorf("list: %v, %w", all, err)
	}
	if err := clusters.Delete(made.ID, target, true); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := until("the end", func() (bool, error) {
		_, err := clusters.GetCluster(made.ID, target)
		if status(err) == 404 {
			return true, nil
		}
		return false, err
	}); err != nil {
		return err
	}
	fmt.Println("IBM Cloud Kubernetes Service: bluemix-go made, found, listed and deleted a cluster")
	return nil
}
