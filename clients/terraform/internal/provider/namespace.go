package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"trestle.dev/clients/go/pb/trestlev1"
)

type namespaceModel struct {
	Name        types.String `tfsdk:"name"`
	Deployments types.Map    `tfsdk:"deployments"`
}

var namespaceKind = kind[namespaceModel]{
	name: "namespace",
	schema: schema.Schema{
		Description: "A namespace: the unit in which resources are named and networks are kept apart.",
		Attributes: map[string]schema.Attribute{
			"name": fixed("Its name."),
			"deployments": schema.MapAttribute{ElementType: types.StringType, Optional: true,
				Description: "Where it lives in each cloud: the cloud, and the cloud's own id (a subscription and resource group, a project, an account)."},
		},
	},
	called: func(m namespaceModel) string { return "namespace " + m.Name.ValueString() },
	create: func(c *call, m *namespaceModel) error {
		name := m.Name.ValueString()
		there, err := found(second(c.Namespaces.GetNamespace(c, &trestlev1.GetNamespaceRequest{Name: name})))
		switch {
		case err != nil:
			return err
		case there:
			return existing("namespace "+name, "trestle_namespace", name)
		}
		return m.set(c)
	},
	read: func(c *call, m *namespaceModel) (bool, error) {
		now, err := c.Namespaces.GetNamespace(c, &trestlev1.GetNamespaceRequest{Name: m.Name.ValueString()})
		if err != nil {
			return found(err)
		}
		deployments := make(map[string]string)
		for _, deployment := range now.GetDeployments() {
			deployments[deployment.GetCloud()] = deployment.GetId()
		}
		// An empty map that somebody wrote stays one.
		if len(deployments) > 0 || len(m.Deployments.Elements()) > 0 {
			m.Deployments = mapOf(deployments)
		}
		return true, nil
	},
	update: func(c *call, _ namespaceModel, m *namespaceModel) error { return m.set(c) },
	remove: func(c *call, m namespaceModel) error {
		return second(c.Namespaces.DeleteNamespace(c, &trestlev1.DeleteNamespaceRequest{Name: m.Name.ValueString()}))
	},
	imported: func(id string) (namespaceModel, error) {
		return namespaceModel{types.StringValue(id), mapOf(nil)}, nil
	},
}

func (m namespaceModel) set(c *call) error {
	wanted := &trestlev1.Namespace{Name: m.Name.ValueString()}
	for cloud, id := range textsOf(m.Deployments) {
		wanted.Deployments = append(wanted.Deployments, &trestlev1.Deployment{Cloud: cloud, Id: id})
	}
	return second(c.Namespaces.SetNamespace(c, wanted))
}
