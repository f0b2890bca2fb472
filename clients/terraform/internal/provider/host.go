package provider

import (
	"fmt"
	"time"

	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"trestle.dev/clients/go/pb/trestlev1"
)

const joinInterval = 2 * time.Second

type hostModel struct {
	Name      types.String `tfsdk:"name"`
	Tag       types.String `tfsdk:"tag"`
	Addresses types.List   `tfsdk:"addresses"`
	Labels    types.Map    `tfsdk:"labels"`
	JoinedBy  types.String `tfsdk:"joined_by"`
}

var hostKind = kind[hostModel]{
	name: "host",
	schema: schema.Schema{
		Description: "A machine that joins by itself (`trestle join`, in its user data, with a trestle_join_token). Making it waits until the machine has joined, as long as the provider's timeout; destroying it takes its certificates, tag and record away at once.",
		Attributes: map[string]schema.Attribute{
			"name":      fixed("The name it joins by."),
			"tag":       filled("Its own tag, which holds its addresses."),
			"addresses": schema.ListAttribute{ElementType: types.StringType, Computed: true, Description: "As it reported them last."},
			"labels":    schema.MapAttribute{ElementType: types.StringType, Computed: true, Description: "What it is labelled with."},
			"joined_by": filled("What admitted it."),
		},
	},
	called: func(m hostModel) string { return "host " + m.Name.ValueString() },
	create: func(c *call, m *hostModel) error {
		for {
			there, err := m.refresh(c)
			if err != nil || there {
				return err
			}
			select {
			case <-c.Done():
				return fmt.Errorf("it has not joined in time; on the machine: trestle join (the token: trestle_join_token): %w", c.Err())
			case <-time.After(joinInterval):
			}
		}
	},
	read: func(c *call, m *hostModel) (bool, error) { return m.refresh(c) },
	remove: func(c *call, m hostModel) error {
		answer, err := c.Hosts.RemoveHost(c, &trestlev1.RemoveHostRequest{Name: m.Name.ValueString()})
		if notice := answer.GetNotice(); notice != "" {
			c.warn("host "+m.Name.ValueString()+" is gone", notice)
		}
		return err
	},
	imported: func(id string) (hostModel, error) { return hostModel{Name: types.StringValue(id)}, nil },
}

func (m *hostModel) refresh(c *call) (bool, error) {
	now, err := c.Hosts.GetHost(c, &trestlev1.GetHostRequest{Name: m.Name.ValueString()})
	if err == nil {
		*m = hostOf(now)
	}
	return found(err)
}

func hostOf(now *trestlev1.HostInfo) hostModel {
	labels := mapOf(now.GetLabels())
	return hostModel{types.StringValue(now.GetName()), types.StringValue(now.GetTag()), listOf(now.GetAddresses()), labels, types.StringValue(now.GetJoinedBy())}
}

func hostAttributes(name dataschema.StringAttribute) map[string]dataschema.Attribute {
	return map[string]dataschema.Attribute{
		"name": name, "tag": told("Its own tag, which holds its addresses."), "addresses": toldTexts("As it reported them last."),
		"labels": toldMap("What it is labelled with."), "joined_by": told("What admitted it."),
	}
}

var hostSource = source[hostModel]{
	name:   "host",
	schema: dataschema.Schema{Description: "A machine that has joined.", Attributes: hostAttributes(asked("Its name."))},
	read: func(c *call, m *hostModel) error {
		now, err := c.Hosts.GetHost(c, &trestlev1.GetHostRequest{Name: m.Name.ValueString()})
		if err == nil {
			*m = hostOf(now)
		}
		return err
	},
}

type hostsLook struct {
	Hosts []hostModel `tfsdk:"hosts"`
}

var hostsSource = source[hostsLook]{
	name: "hosts",
	schema: dataschema.Schema{
		Description: "All machines that have joined.",
		Attributes:  map[string]dataschema.Attribute{"hosts": toldEach("Sorted by name.", hostAttributes(told("Its name.")))},
	},
	read: func(c *call, m *hostsLook) error {
		answer, err := c.Hosts.ListHosts(c, &trestlev1.ListHostsRequest{})
		m.Hosts = []hostModel{}
		for _, host := range answer.GetHosts() {
			m.Hosts = append(m.Hosts, hostOf(host))
		}
		return err
	},
}
