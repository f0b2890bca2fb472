package main

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The part of controlplane.antrea.io/v1beta2 that an agent lives by, read field by field. client-go does everything
// around it: framing, envelopes, choosing the type by the kind.

var groupVersion = schema.GroupVersion{Group: "controlplane.antrea.io", Version: "v1beta2"}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, kind := range []string{"AddressGroup", "AppliedToGroup", "EgressGroup"} {
		scheme.AddKnownTypeWithName(groupVersion.WithKind(kind), &Group{})
		scheme.AddKnownTypeWithName(groupVersion.WithKind(kind+"Patch"), &Patch{})
		scheme.AddKnownTypeWithName(groupVersion.WithKind(kind+"List"), &GroupList{})
	}
	scheme.AddKnownTypeWithName(groupVersion.WithKind("NetworkPolicy"), &Policy{})
	scheme.AddKnownTypeWithName(groupVersion.WithKind("NetworkPolicyList"), &PolicyList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// Member is a workload with its raw addresses; agents compare those byte by byte.
type Member struct {
	Kind, Namespace, Name string
	IPs                   string
}

func (m Member) key() string { return fmt.Sprintf("%s:%s/%s%x", m.Kind, m.Namespace, m.Name, m.IPs) }

type Group struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Members []Member
}

type Patch struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Added, Removed []Member
}

type GroupList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []Group
}

type Policy struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Rules           int
	AppliedToGroups []string
	SourceType      string
}

type PolicyList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []Policy
}

// consume calls each with every length-delimited field of a message.
func consume(data []byte, each func(number protowire.Number, value []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
				return protowire.ParseError(n)
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if err := each(number, value); err != nil {
			return err
		}
	}
	return nil
}

func (m *Member) unmarshal(data []byte) error {
	kinds := map[protowire.Number]string{1: "Pod", 2: "ExternalEntity", 5: "Node", 6: "Service"}
	return consume(data, func(number protowire.Number, value []byte) error {
		if number == 3 {
			if len(value) != 16 {
				return fmt.Errorf("an address of %d bytes", len(value))
			}
			m.IPs += string(value)
			return nil
		}
		kind, ok := kinds[number]
		if !ok {
			return nil
		}
		m.Kind = kind
		return consume(value, func(number protowire.Number, text []byte) error {
			if number == 1 {
				m.Name = string(text)
			} else {
				m.Namespace = string(text)
			}
			return nil
		})
	})
}

func appendMember(list *[]Member, value []byte) error {
	var member Member
	err := member.unmarshal(value)
	*list = append(*list, member)
	return err
}

func (g *Group) Unmarshal(data []byte) error {
	return consume(data, func(number protowire.Number, value []byte) error {
		if number == 1 {
			return g.ObjectMeta.Unmarshal(value)
		}
		return appendMember(&g.Members, value)
	})
}

func (p *Patch) Unmarshal(data []byte) error {
	return consume(data, func(number protowire.Number, value []byte) error {
		switch number {
		case 1:
			return p.ObjectMeta.Unmarshal(value)
		case 2:
			return appendMember(&p.Added, value)
		default:
			return appendMember(&p.Removed, value)
		}
	})
}

func (l *GroupList) Unmarshal(data []byte) error {
	return consume(data, func(number protowire.Number, value []byte) error {
		if number == 1 {
			return l.ListMeta.Unmarshal(value)
		}
		var item Group
		err := item.Unmarshal(value)
		l.Items = append(l.Items, item)
		return err
	})
}

func (p *Policy) Unmarshal(data []byte) error {
	return consume(data, func(number protowire.Number, value []byte) error {
		switch number {
		case 1:
			return p.ObjectMeta.Unmarshal(value)
		case 2:
			p.Rules++
		case 3:
			p.AppliedToGroups = append(p.AppliedToGroups, string(value))
		case 6:
			return consume(value, func(number protowire.Number, text []byte) error {
				if number == 1 {
					p.SourceType = string(text)
				}
				return nil
			})
		}
		return nil
	})
}

func (l *PolicyList) Unmarshal(data []byte) error {
	return consume(data, func(number protowire.Number, value []byte) error {
		if number == 1 {
			return l.ListMeta.Unmarshal(value)
		}
		var item Policy
		err := item.Unmarshal(value)
		l.Items = append(l.Items, item)
		return err
	})
}

// What client-go asks of a type before it decodes into it.
func (g *Group) Reset()              { *g = Group{} }
func (g *Group) String() string      { return fmt.Sprintf("%+v", *g) }
func (*Group) ProtoMessage()         {}
func (p *Patch) Reset()              { *p = Patch{} }
func (p *Patch) String() string      { return fmt.Sprintf("%+v", *p) }
func (*Patch) ProtoMessage()         {}
func (l *GroupList) Reset()          { *l = GroupList{} }
func (l *GroupList) String() string  { return fmt.Sprintf("%+v", *l) }
func (*GroupList) ProtoMessage()     {}
func (p *Policy) Reset()             { *p = Policy{} }
func (p *Policy) String() string     { return fmt.Sprintf("%+v", *p) }
func (*Policy) ProtoMessage()        {}
func (l *PolicyList) Reset()         { *l = PolicyList{} }
func (l *PolicyList) String() string { return fmt.Sprintf("%+v", *l) }
func (*PolicyList) ProtoMessage()    {}
func (g *Group) DeepCopyObject() runtime.Object {
	copied := *g
	g.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Members = append([]Member(nil), g.Members...)
	return &copied
}
func (p *Patch) DeepCopyObject() runtime.Object      { copied := *p; return &copied }
func (l *GroupList) DeepCopyObject() runtime.Object  { copied := *l; return &copied }
func (p *Policy) DeepCopyObject() runtime.Object     { copied := *p; return &copied }
func (l *PolicyList) DeepCopyObject() runtime.Object { copied := *l; return &copied }
