/* Columns of operations, filled straight from libpq's results: what columns.py does, without an object per value.

   A statement that an application waits for costs some fifty microseconds; to take its rows apart in Python costs one
   or two for each row, here a tenth of one. The module is optional: where it was not built, or does not fit the driver
   that is installed, columns.py does the same. Everything here runs with the interpreter's lock held.

   libpq is the one that psycopg itself uses: `bind` is given psycopg's own extension module, and looks its functions up
   from there. If some other libpq is visible to everybody in the process it might be another one, and nothing is bound.
   Of a result the fields are used themselves, as psycopg does, if they are where `is_as_declared` finds them to be.
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { /* PGresAttDesc of libpq-fe.h */
    char *name;
    unsigned int table;
    int column;
    int format;
    unsigned int type;
    int size;
    int modifier;
} pg_column;

typedef struct { /* PGresAttValue of libpq-int.h */
    int length;  /* -1: NULL */
    char *bytes;
} pg_value;

typedef struct { /* the beginning of pg_result in libpq-int.h, since PostgreSQL 9 */
    int row_count;
    int column_count;
    pg_column *columns;
    pg_value **rows;
    int rows_room;
    int parameter_count;
    void *parameters;
    int status;
} pg_result;

enum { COMMAND_OK = 1, TUPLES_OK = 2 }; /* of ExecStatusType in libpq-fe.h */
#define LIBPQ_VERSION_MAX 189999        /* the last that is known to have results like that */

static PyTypeObject *result_type; /* psycopg's PGresult; NULL until bound */
static PyObject *pgresult_ptr;    /* the name of its attribute */
static uint64_t seed;             /* of the hashes below, so that nobody outside can choose keys that collide */

enum { READ, WRITE, UPDATE, DELETE, READ_ABSENT, INSERT, KINDS };
#define HAS_PREVIOUS(kind) ((kind) == UPDATE || (kind) == DELETE)

#define VERSION_MAX INT64_MAX
#define KEY_COLUMNS_MAX 32 /* as many as PostgreSQL allows in an index */

/* A hash that only this process knows. */
static uint64_t hash_of(const char *bytes, size_t length) {
    uint64_t hash = seed ^ length;
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
        bytes += 8;
        length -= 8;
    }
    uint64_t word = 0;
    memcpy(&word, bytes, length);
    hash = (hash ^ word) * 0xC4CEB9FE1A85EC53u;
    return hash ^ (hash >> 29);
}

/* XXH3 with 64 bits, as xxhash has it, of texts that are no longer than names of keys mostly are. */

#define HASHED_MAX 128

static uint64_t read_64(const unsigned char *from) {
    uint64_t word = 0;
    for (int i = 0; i < 8; i++) word |= (uint64_t)from[i] << (8 * i); /* compilers know what is meant */
    return word;
}

static uint32_t read_32(const unsigned char *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static const unsigned char secret[HASHED_MAX] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d,
    0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0,
    0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0,
    0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b,
    0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac,
    0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51,
    0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
};

static uint64_t multiply(uint64_t one, uint64_t other) { /* 128 bits of product, folded */
    unsigned __int128 product = (unsigned __int128)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t mix(const unsigned char *bytes, int place) {
    return multiply(read_64(bytes) ^ read_64(secret + place), read_64(bytes + 8) ^ read_64(secret + place + 8));
}

static uint64_t spread(uint64_t hash, int shift, uint64_t factor) { return (hash ^ (hash >> shift)) * factor; }

static uint64_t rotate(uint64_t word, int by) { return word << by | word >> (64 - by); }

/* Pre: 0 < length <= HASHED_MAX. */
static uint64_t hash_short(const char *text, size_t length) {
    const unsigned char *bytes = (const unsigned char *)text, *end = bytes + length;
    uint64_t hash;
    if (length <= 3) {
        hash = (uint64_t)bytes[0] << 16 | (uint64_t)bytes[length >> 1] << 24 | end[-1] | (uint64_t)length << 8;
        hash ^= read_32(secret) ^ read_32(secret + 4);
        hash = spread(hash, 33, 0xC2B2AE3D27D4EB4Fu);
        hash = spread(hash, 29, 0x165667B19E3779F9u);
        return hash ^ (hash >> 32);
    }
    if (length <= 8) {
        hash = read_32(end - 4) + ((uint64_t)read_32(bytes) << 32);
        hash ^= read_64(secret + 8) ^ read_64(secret + 16);
        hash ^= rotate(hash, 49) ^ rotate(hash, 24);
        hash *= 0x9FB21C651E98DF25u;
        hash ^= (hash >> 35) + length;
        hash *= 0x9FB21C651E98DF25u;
        return hash ^ (hash >> 28);
    }
    if (length <= 16) {
        uint64_t low = read_64(bytes) ^ read_64(secret + 24) ^ read_64(secret + 32);
        uint64_t high = read_64(end - 8) ^ read_64(secret + 40) ^ read_64(secret + 48);
        uint64_t swapped = 0;
        for (int i = 0; i < 8; i++) swapped |= (low >> (8 * i) & 0xFF) << (56 - 8 * i);
        hash = length + swapped + high + multiply(low, high);
    } else {
        hash = length * 0x9E3779B185EBCA87u;
        for (int i = ((int)length - 1) / 32; i >= 0; i--)
            hash += mix(bytes + 16 * i, 32 * i) + mix(end - 16 * (i + 1), 32 * i + 16);
    }
    hash = spread(hash, 37, 0x165667919E3779F9u);
    return hash ^ (hash >> 32);
}

/* Names of keys: their numbers, and those names that the verifier has not been told, as fields of protobuf, so that
   nobody has to make objects of them. */

typedef struct {
    uint64_t number; /* 0 where there is none */
    uint64_t check;  /* another hash: if two names have one number, both are told, and the verifier sees it */
} Known;

typedef struct {
    PyObject_HEAD
    PyObject *hash; /* from the bytes of a name to its number */
    PyObject *full; /* called when `most` names are known; it calls `forget` */
    unsigned int field; /* the number of the field that each of them is, with a number as its 1st and a name as its 2nd */
    Known *known; /* names that were told, or are in `fields`; open addressing */
    size_t room, used, most;
    char *fields;
    size_t fields_room, fields_used;
} KeyNames;

#define VARINT_MAX 10
#define LENGTH_DELIMITED 2

static char *put_varint(char *to, uint64_t number) {
    for (; number >= 0x80; number >>= 7) *to++ = (char)(number | 0x80);
    *to++ = (char)number;
    return to;
}

/* Note that a name is known. 1: it was. 0: it was not. -1: an exception is set. */
static int know(KeyNames *self, uint64_t number, uint64_t check) {
    if (2 * (self->used + 1) >= self->room) {
        size_t room = self->room ? 2 * self->room : 1024;
        Known *known = PyMem_Calloc(room, sizeof *known);
        if (!known) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t i = 0; i < self->room; i++) {
            if (!self->known[i].number) continue;
            size_t place = self->known[i].number & (room - 1);
            while (known[place].number) place = (place + 1) & (room - 1);
            known[place] = self->known[i];
        }
        PyMem_Free(self->known);
        self->known = known;
        self->room = room;
    }
    size_t place = number & (self->room - 1);
    for (; self->known[place].number; place = (place + 1) & (self->room - 1))
        if (self->known[place].number == number && self->known[place].check == check) return 1;
    self->known[place] = (Known){number, check};
    self->used++;
    return 0;
}

/* Add a name to those that are to be told. */
static int tell_name(KeyNames *self, const char *name, size_t length, uint64_t number) {
    char inner[2 * (1 + VARINT_MAX)], *end = inner;
    *end++ = 1 << 3;
    end = put_varint(end, number);
    *end++ = 2 << 3 | LENGTH_DELIMITED;
    end = put_varint(end, length);
    size_t inner_length = (size_t)(end - inner), most = self->fields_used + 2 * VARINT_MAX + inner_length + length;
    if (most > self->fields_room) {
        char *fields = PyMem_Realloc(self->fields, 2 * most + 256);
        if (!fields) {
            PyErr_NoMemory();
            return -1;
        }
        self->fields = fields;
        self->fields_room = 2 * most + 256;
    }
    char *to = put_varint(self->fields + self->fields_used, (uint64_t)self->field << 3 | LENGTH_DELIMITED);
    to = put_varint(to, inner_length + length);
    memcpy(to, inner, inner_length);
    memcpy(to + inner_length, name, length);
    self->fields_used = (size_t)(to + inner_length + length - self->fields);
    return 0;
}

/* Whether bytes are text. -1: they are not, and an exception is set. */
static int check_text(const char *bytes, size_t length) {
    size_t i = 0;
    while (i < length && !(bytes[i] & 0x80)) i++;
    if (i == length) return 0;
    PyObject *text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, NULL);
    Py_XDECREF(text);
    return text ? 0 : -1;
}

/* The number of a name, which is noted down if it is new. */
static int number_of_name(KeyNames *self, const char *name, size_t length, uint64_t *number) {
    if (check_text(name, length)) return -1;
    if (length && length <= HASHED_MAX) {
        *number = hash_short(name, length);
    } else {
        PyObject *bytes = PyBytes_FromStringAndSize(name, (Py_ssize_t)length);
        PyObject *made = bytes ? PyObject_CallOneArg(self->hash, bytes) : NULL;
        Py_XDECREF(bytes);
        if (!made) return -1;
        *number = PyLong_AsUnsignedLongLong(made);
        Py_DECREF(made);
        if (*number == (uint64_t)-1 && PyErr_Occurred()) return -1;
    }
    if (!*number) *number = 1; /* 0 is the fence row */
    uint64_t check = hash_of(name, length);
    int was = know(self, *number, check);
    if (was) return was < 0 ? -1 : 0;
    if (self->used > self->most) {
        PyObject *done = PyObject_CallNoArgs(self->full);
        Py_XDECREF(done);
        if (!done || know(self, *number, check) < 0) return -1;
    }
    return tell_name(self, name, length, *number);
}

static int names_init(KeyNames *self, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *hash, *full;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "OOnI:KeyNames", &hash, &full, &most, &self->field)) return -1;
    self->most = (size_t)most;
    Py_XSETREF(self->hash, Py_NewRef(hash));
    Py_XSETREF(self->full, Py_NewRef(full));
    return 0;
}

static PyObject *names_number(KeyNames *self, PyObject *given) {
    Py_ssize_t length;
    const char *name = PyUnicode_AsUTF8AndSize(given, &length);
    uint64_t number;
    if (!name || number_of_name(self, name, (size_t)length, &number)) return NULL;
    return PyLong_FromUnsignedLongLong(number);
}

static PyObject *names_fields(KeyNames *self, PyObject *given) {
    Py_ssize_t first = PyLong_AsSsize_t(given), used = (Py_ssize_t)self->fields_used;
    if (first < 0) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no such place");
    return PyBytes_FromStringAndSize(self->fields + (first < used ? first : 0), first < used ? used - first : 0);
}

static PyObject *names_cut(KeyNames *self, PyObject *given) {
    size_t length = PyLong_AsSize_t(given);
    if (length == (size_t)-1 && PyErr_Occurred()) return NULL;
    if (length > self->fields_used) length = self->fields_used;
    self->fields_used -= length;
    if (self->fields_used) memmove(self->fields, self->fields + length, self->fields_used);
    Py_RETURN_NONE;
}

static PyObject *names_forget(KeyNames *self, PyObject *Py_UNUSED(ignored)) {
    PyMem_Free(self->known);
    self->known = NULL;
    self->room = self->used = 0;
    Py_RETURN_NONE;
}

static int names_traverse(KeyNames *self, visitproc visit, void *arg) {
    Py_VISIT(self->hash);
    Py_VISIT(self->full);
    return 0;
}

static int names_clear(KeyNames *self) {
    self->most = SIZE_MAX; /* nobody calls `full` any more */
    Py_CLEAR(self->full);
    return 0;
}

static void names_dealloc(KeyNames *self) {
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->hash);
    Py_CLEAR(self->full);
    PyMem_Free(self->known);
    PyMem_Free(self->fields);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t names_length(KeyNames *self) { return (Py_ssize_t)self->used; }

static PyMethodDef names_methods[] = {
    {"number", (PyCFunction)names_number, METH_O, "The number of a name."},
    {"fields", (PyCFunction)names_fields, METH_O, "The names to be told, as fields of a Fragment, from a byte on."},
    {"cut", (PyCFunction)names_cut, METH_O, "So many bytes of the fields, the first ones, were sent."},
    {"forget", (PyCFunction)names_forget, METH_NOARGS, "No name is known any more."},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods names_sequence = {.sq_length = (lenfunc)names_length};

static PyTypeObject KeyNamesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mussurana.collector._columns.KeyNames",
    .tp_basicsize = sizeof(KeyNames),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Numbers of names, and those names that the verifier has not been told.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)names_init,
    .tp_dealloc = (destructor)names_dealloc,
    .tp_traverse = (traverseproc)names_traverse,
    .tp_clear = (inquiry)names_clear,
    .tp_methods = names_methods,
    .tp_as_sequence = &names_sequence,
};

/* Numbers of keys, by what the database sends for them. Open addressing; bytes of the keys lie one after the other. */

typedef struct {
    uint64_t hash;
    uint64_t number;
    size_t at;       /* where its bytes are */
    uint32_t length; /* of them */
    uint32_t used;
} Slot;

typedef struct {
    PyObject_HEAD
    PyObject *prefix; /* if it is not None, a key's name is this and its values, and its number that of its name */
    PyObject *make;   /* KeyNames then; else it is called with the values of a key, bytes or a tuple of them, and returns
                         the number, or None if it has none; all that follows is only for this */
    Slot *slots;
    size_t slot_count; /* a power of two, or 0 */
    size_t used;
    char *bytes;
    size_t bytes_used, bytes_room;
} KeyNumbers;

/* The slot of a key, or the free one where it belongs. Pre: there is a free slot. */
static Slot *find_slot(KeyNumbers *self, uint64_t hash, const char *bytes, size_t length) {
    size_t mask = self->slot_count - 1;
    for (size_t place = hash & mask;; place = (place + 1) & mask) {
        Slot *slot = &self->slots[place];
        if (!slot->used) return slot;
        if (slot->hash == hash && slot->length == length && !memcmp(self->bytes + slot->at, bytes, length)) return slot;
    }
}

/* Make room for one more key of `length` bytes. */
static int make_room(KeyNumbers *self, size_t length) {
    if (self->bytes_used + length > self->bytes_room) {
        size_t room = (self->bytes_used + length) * 2 + 256;
        char *bytes = PyMem_Realloc(self->bytes, room);
        if (!bytes) goto no_memory;
        self->bytes = bytes;
        self->bytes_room = room;
    }
    if ((self->used + 1) * 3 >= self->slot_count * 2) {
        size_t count = self->slot_count ? self->slot_count * 2 : 64;
        Slot *old = self->slots, *slots = PyMem_Calloc(count, sizeof(Slot));
        if (!slots) goto no_memory;
        size_t old_count = self->slot_count;
        self->slots = slots;
        self->slot_count = count;
        for (size_t i = 0; i < old_count; i++) {
            if (!old[i].used) continue;
            size_t place = old[i].hash & (count - 1);
            while (slots[place].used) place = (place + 1) & (count - 1);
            slots[place] = old[i];
        }
        PyMem_Free(old);
    }
    return 0;
no_memory:
    PyErr_NoMemory();
    return -1;
}

/* The values of a key as Python has them: bytes, or a tuple. */
static PyObject *value_of(const char *packed, int count) {
    PyObject *value = NULL, *several = count == 1 ? NULL : PyTuple_New(count);
    if (count != 1 && !several) return NULL;
    for (int i = 0; i < count; i++) {
        uint32_t size;
        memcpy(&size, packed, sizeof size);
        value = PyBytes_FromStringAndSize(packed + sizeof size, size);
        if (!value) {
            Py_XDECREF(several);
            return NULL;
        }
        if (several) PyTuple_SET_ITEM(several, i, value);
        packed += sizeof size + size;
    }
    return several ? several : value;
}

/* The name of a key whose values stand in it as they are: accounts/42. Returns its length. Pre: there is room for the
   prefix and for `packed`. */
static size_t write_name(char *name, const char *prefix, size_t prefix_length, const char *packed, int count) {
    memcpy(name, prefix, prefix_length);
    char *to = name + prefix_length;
    for (int i = 0; i < count; i++) {
        uint32_t size; /* it took more room than the comma does */
        memcpy(&size, packed, sizeof size);
        if (i) *to++ = ',';
        memcpy(to, packed + sizeof size, size);
        to += size;
        packed += sizeof size + size;
    }
    return (size_t)(to - name);
}

/* The number of such a key. */
static int number_by_name(KeyNumbers *self, const char *packed, size_t length, int count, uint64_t *number) {
    Py_ssize_t prefix_length;
    const char *prefix = PyUnicode_AsUTF8AndSize(self->prefix, &prefix_length);
    if (!prefix) return -1;
    char on_stack[512], *name = on_stack;
    if ((size_t)prefix_length + length > sizeof on_stack) name = PyMem_Malloc((size_t)prefix_length + length);
    if (!name) {
        PyErr_NoMemory();
        return -1;
    }
    size_t name_length = write_name(name, prefix, (size_t)prefix_length, packed, count);
    int failed = number_of_name((KeyNames *)self->make, name, name_length, number);
    if (name != on_stack) PyMem_Free(name);
    return failed;
}

/* The number of a key that consists of `count` values, which lie in `packed`, each with its length in front.
   1: it is in *number. 0: the key has none. -1: an exception is set. */
static int number_of(KeyNumbers *self, const char *packed, size_t length, int count, uint64_t *number) {
    if (self->prefix != Py_None) return number_by_name(self, packed, length, count, number) ? -1 : 1;
    uint64_t hash = hash_of(packed, length);
    if (self->slot_count) {
        Slot *slot = find_slot(self, hash, packed, length);
        if (slot->used) {
            *number = slot->number;
            return 1;
        }
    }
    PyObject *key = value_of(packed, count);
    if (!key) return -1;
    PyObject *made = PyObject_CallOneArg(self->make, key);
    Py_DECREF(key);
    if (!made) return -1;
    if (made == Py_None) {
        Py_DECREF(made);
        return 0;
    }
    *number = PyLong_AsUnsignedLongLong(made);
    Py_DECREF(made);
    if (*number == (uint64_t)-1 && PyErr_Occurred()) return -1;
    /* Only now: `make` may have cleared the table, or let others add to it. */
    if (make_room(self, length)) return -1;
    Slot *slot = find_slot(self, hash, packed, length);
    if (!slot->used) {
        memcpy(self->bytes + self->bytes_used, packed, length);
        *slot = (Slot){hash, *number, self->bytes_used, (uint32_t)length, 1};
        self->bytes_used += length;
        self->used++;
    }
    return 1;
}

static int numbers_init(KeyNumbers *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"make", "prefix", NULL};
    PyObject *make, *prefix;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:KeyNumbers", names, &make, &prefix)) return -1;
    if (prefix != Py_None && !(PyUnicode_Check(prefix) && Py_IS_TYPE(make, &KeyNamesType))) {
        PyErr_SetString(PyExc_TypeError, "a prefix is a text, and goes with names");
        return -1;
    }
    Py_XSETREF(self->make, Py_NewRef(make));
    Py_XSETREF(self->prefix, Py_NewRef(prefix));
    return 0;
}

static PyObject *numbers_clear(KeyNumbers *self, PyObject *Py_UNUSED(ignored)) {
    PyMem_Free(self->slots);
    PyMem_Free(self->bytes);
    self->slots = NULL;
    self->bytes = NULL;
    self->slot_count = self->used = self->bytes_used = self->bytes_room = 0;
    Py_RETURN_NONE;
}

static int numbers_traverse(KeyNumbers *self, visitproc visit, void *arg) {
    Py_VISIT(self->make);
    return 0;
}

static int numbers_forget(KeyNumbers *self) {
    Py_CLEAR(self->make);
    return 0;
}

static void numbers_dealloc(KeyNumbers *self) {
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->make);
    Py_CLEAR(self->prefix);
    PyMem_Free(self->slots);
    PyMem_Free(self->bytes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t numbers_length(KeyNumbers *self) { return (Py_ssize_t)self->used; }

static PyMethodDef numbers_methods[] = {
    {"clear", (PyCFunction)numbers_clear, METH_NOARGS, "Forget all."},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods numbers_sequence = {.sq_length = (lenfunc)numbers_length};

static PyTypeObject KeyNumbersType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mussurana.collector._columns.KeyNumbers",
    .tp_basicsize = sizeof(KeyNumbers),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Numbers of keys, by what the database sends for them.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)numbers_init,
    .tp_dealloc = (destructor)numbers_dealloc,
    .tp_traverse = (traverseproc)numbers_traverse,
    .tp_clear = (inquiry)numbers_forget,
    .tp_methods = numbers_methods,
    .tp_as_sequence = &numbers_sequence,
};

/* Columns over operations. */

typedef struct {
    uint64_t key, version, previous;
    uint32_t statement;
    uint8_t kind;
} Operation;

typedef struct {
    PyObject_HEAD
    Operation *operations;
    size_t count, room;
} Columns;

/* Where so many more operations go; NULL, and an exception is set, if there is no memory. */
static Operation *add_operations(Columns *self, size_t more) {
    if (!self->operations || self->count + more > self->room) {
        size_t room = (self->count + more) + self->count / 2 + 8;
        Operation *operations = PyMem_Realloc(self->operations, room * sizeof(Operation));
        if (!operations) {
            PyErr_NoMemory();
            return NULL;
        }
        self->operations = operations;
        self->room = room;
    }
    return self->operations + self->count;
}

static void columns_dealloc(Columns *self) {
    PyMem_Free(self->operations);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t columns_length(Columns *self) { return (Py_ssize_t)self->count; }

/* A number of at most `most`. */
static int number_in(PyObject *given, uint64_t most, uint64_t *number) {
    *number = PyLong_AsUnsignedLongLong(given);
    if (*number == (uint64_t)-1 && PyErr_Occurred()) return -1;
    if (*number > most) {
        PyErr_SetString(PyExc_OverflowError, "the number is too large for its column");
        return -1;
    }
    return 0;
}

static PyObject *columns_tell(Columns *self, PyObject *const *args, Py_ssize_t nargs) {
    uint64_t kind, key, version, previous, statement;
    if (nargs != 5) return PyErr_Format(PyExc_TypeError, "tell takes 5 arguments, not %zd", nargs);
    if (number_in(args[0], KINDS - 1, &kind) || number_in(args[1], UINT64_MAX, &key) ||
        number_in(args[2], VERSION_MAX, &version) || number_in(args[3], VERSION_MAX, &previous) ||
        number_in(args[4], UINT32_MAX, &statement))
        return NULL;
    Operation *operation = add_operations(self, 1);
    if (!operation) return NULL;
    *operation = (Operation){key, version, previous, (uint32_t)statement, (uint8_t)kind};
    self->count++;
    Py_RETURN_NONE;
}

static PyTypeObject ColumnsType;

static PyObject *columns_extend(Columns *self, PyObject *given) {
    if (!PyObject_TypeCheck(given, &ColumnsType)) return PyErr_Format(PyExc_TypeError, "not columns: %R", given);
    Columns *other = (Columns *)given;
    size_t count = other->count;
    Operation *operations = add_operations(self, count);
    if (!operations) return NULL;
    if (count) memcpy(operations, other->operations, count * sizeof(Operation));
    self->count += count;
    Py_RETURN_NONE;
}

static PyObject *columns_cut(Columns *self, PyObject *given) {
    size_t count = PyLong_AsSize_t(given);
    if (count == (size_t)-1 && PyErr_Occurred()) return NULL;
    if (count < self->count) self->count = count;
    Py_RETURN_NONE;
}

static PyObject *columns_rows(Columns *self, PyObject *Py_UNUSED(ignored)) {
    PyObject *rows = PyList_New((Py_ssize_t)self->count);
    for (size_t i = 0; rows && i < self->count; i++) {
        Operation *o = &self->operations[i];
        PyObject *row = Py_BuildValue("BKKKI", o->kind, (unsigned long long)o->key, (unsigned long long)o->version,
                                      (unsigned long long)o->previous, (unsigned int)o->statement);
        if (!row) {
            Py_DECREF(rows);
            return NULL;
        }
        PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
    }
    return rows;
}

static void put(char *to, uint64_t number, int size) { /* little-endian, whatever the machine is */
    for (int i = 0; i < size; i++) to[i] = (char)(number >> (8 * i));
}

/* A tuple of columns, still empty, of these sizes in bytes; `to` points to each of them. */
static PyObject *empty_columns(const size_t *sizes, int count, char **to) {
    PyObject *content = PyTuple_New(count);
    for (int i = 0; content && i < count; i++) {
        PyObject *column = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sizes[i]);
        if (!column) {
            Py_DECREF(content);
            return NULL;
        }
        to[i] = PyBytes_AS_STRING(column);
        PyTuple_SET_ITEM(content, i, column);
    }
    return content;
}

static PyObject *columns_content(Columns *self, PyObject *Py_UNUSED(ignored)) {
    size_t count = self->count, replaced = 0;
    for (size_t i = 0; i < count; i++) replaced += HAS_PREVIOUS(self->operations[i].kind);
    size_t sizes[5] = {count, 8 * count, 8 * count, 8 * replaced, 4 * count};
    char *to[5];
    PyObject *content = empty_columns(sizes, 5, to);
    if (!content) return NULL;
    for (size_t i = 0; i < count; i++) {
        Operation *o = &self->operations[i];
        to[0][i] = (char)o->kind;
        put(to[1] + 8 * i, o->key, 8);
        put(to[2] + 8 * i, o->version, 8);
        if (HAS_PREVIOUS(o->kind)) {
            put(to[3], o->previous, 8);
            to[3] += 8;
        }
        put(to[4] + 4 * i, o->statement, 4);
    }
    return content;
}

/* What the server answered, as it was before `narrow` took our columns, or all of it, out of the application's sight. */
typedef struct {
    PyObject_HEAD
    PyObject *result;    /* psycopg's, which keeps it alive */
    PyObject *statement; /* the name of the prepared one */
    int row_count;
    int column_count;
} Answer;

static PyTypeObject AnswerType;

/* libpq's result in psycopg's; NULL with an exception if it was cleared. */
static pg_result *result_in(PyObject *given) {
    PyObject *address = PyObject_GetAttr(given, pgresult_ptr);
    if (!address) return NULL;
    pg_result *result = address == Py_None ? NULL : PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (!result && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the result was cleared");
    return result;
}

/* narrow(result, columns, visible, quiet, statement) -> Answer | None: leave the application only the first columns of
   a result, or no rows at all if it is to be quiet. None if the result has not that many columns, or is an error. */
static PyObject *narrow(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 5) return PyErr_Format(PyExc_TypeError, "narrow takes five arguments");
    if (!result_type || !Py_IS_TYPE(args[0], result_type)) Py_RETURN_NONE;
    long columns = PyLong_AsLong(args[1]), visible = PyLong_AsLong(args[2]);
    if ((columns < 0 || visible < 0) && PyErr_Occurred()) return NULL;
    pg_result *result = result_in(args[0]);
    if (!result) return NULL;
    int is_quiet = args[3] == Py_True;
    if (result->status != TUPLES_OK || result->column_count != columns || visible < 0 || visible >= columns ||
        (is_quiet && result->columns[0].format))
        Py_RETURN_NONE;
    Answer *answer = PyObject_New(Answer, &AnswerType);
    if (!answer) return NULL;
    answer->result = Py_NewRef(args[0]);
    answer->statement = Py_NewRef(args[4]);
    answer->row_count = result->row_count;
    answer->column_count = result->column_count;
    result->column_count = (int)visible;
    if (is_quiet) {
        result->status = COMMAND_OK;
        result->row_count = 0;
        result->column_count = 0;
    }
    return (PyObject *)answer;
}

static void answer_dealloc(Answer *self) {
    Py_DECREF(self->result);
    Py_DECREF(self->statement);
    PyObject_Free(self);
}

/* The value in a row and a column of an answer. Returns NULL with an exception if there is no such place. */
static const pg_value *answer_value(Answer *self, PyObject *const *args, Py_ssize_t nargs) {
    pg_result *result = result_in(self->result);
    if (!result) return NULL;
    long row = nargs == 2 ? PyLong_AsLong(args[0]) : -1, column = nargs == 2 ? PyLong_AsLong(args[1]) : -1;
    if (row < 0 || row >= self->row_count || column < 0 || column >= self->column_count) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "no such row or column");
        return NULL;
    }
    return &result->rows[row][column];
}

static PyObject *answer_get_value(Answer *self, PyObject *const *args, Py_ssize_t nargs) {
    const pg_value *value = answer_value(self, args, nargs);
    if (!value) return NULL;
    if (value->length < 0) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(value->bytes, value->length);
}

static const pg_column *answer_column(Answer *self, PyObject *given) {
    pg_result *result = result_in(self->result);
    if (!result) return NULL;
    long column = PyLong_AsLong(given);
    if (column < 0 || column >= self->column_count) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "no such column");
        return NULL;
    }
    return &result->columns[column];
}

static PyObject *answer_fname(Answer *self, PyObject *given) {
    const pg_column *column = answer_column(self, given);
    return column ? PyBytes_FromString(column->name) : NULL;
}

static PyObject *answer_ftable(Answer *self, PyObject *given) {
    const pg_column *column = answer_column(self, given);
    return column ? PyLong_FromUnsignedLong(column->table) : NULL;
}

static PyObject *answer_ftablecol(Answer *self, PyObject *given) {
    const pg_column *column = answer_column(self, given);
    return column ? PyLong_FromLong(column->column) : NULL;
}

static PyObject *answer_ftype(Answer *self, PyObject *given) {
    const pg_column *column = answer_column(self, given);
    return column ? PyLong_FromUnsignedLong(column->type) : NULL;
}

static PyObject *answer_fformat(Answer *self, PyObject *given) {
    const pg_column *column = answer_column(self, given);
    return column ? PyLong_FromLong(column->format) : NULL;
}

static PyMethodDef answer_methods[] = {
    {"get_value", (PyCFunction)(void (*)(void))answer_get_value, METH_FASTCALL, "The bytes in a row and a column."},
    {"fname", (PyCFunction)answer_fname, METH_O, "The name of a column."},
    {"ftable", (PyCFunction)answer_ftable, METH_O, "The table that a column is of; 0 for none."},
    {"ftablecol", (PyCFunction)answer_ftablecol, METH_O, "The number of the column in its table."},
    {"ftype", (PyCFunction)answer_ftype, METH_O, "The type of a column."},
    {"fformat", (PyCFunction)answer_fformat, METH_O, "The format of a column: 1 if it is binary."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef answer_members[] = {
    {"result", T_OBJECT, offsetof(Answer, result), READONLY, "What the application has of it."},
    {"statement", T_OBJECT, offsetof(Answer, statement), READONLY, "The name of the prepared statement."},
    {"ntuples", T_INT, offsetof(Answer, row_count), READONLY, "How many rows there are."},
    {"nfields", T_INT, offsetof(Answer, column_count), READONLY, "How many columns there are."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject AnswerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mussurana.collector._columns.Answer",
    .tp_basicsize = sizeof(Answer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "What the server answered, with the columns that the application does not see.",
    .tp_dealloc = (destructor)answer_dealloc,
    .tp_methods = answer_methods,
    .tp_members = answer_members,
};

/* A version in a result: digits. NULL is 0: from before anybody recorded. */
static int version_in(const pg_value *value, uint64_t *version) {
    *version = 0;
    if (value->length < 0) return 0;
    if (value->length < 1 || value->length > 19) goto wrong; /* which fits into 64 bits */
    for (int i = 0; i < value->length; i++) {
        char digit = value->bytes[i];
        if (digit < '0' || digit > '9') goto wrong;
        *version = *version * 10 + (uint64_t)(digit - '0');
    }
    if (*version <= VERSION_MAX) return 0;
wrong:
    PyErr_SetString(PyExc_ValueError, "a version that is none");
    return -1;
}

/* Leave each pair of key and version only once, where it stands first. */
static int without_repetition(Operation *operations, size_t *count) {
    size_t room = 16;
    while (room < 2 * *count) room *= 2;
    uint32_t *table = PyMem_Calloc(room, sizeof *table); /* place + 1, 0 for none */
    if (!table) {
        PyErr_NoMemory();
        return -1;
    }
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        Operation o = operations[i];
        size_t place = ((o.key ^ o.version * 0x9E3779B97F4A7C15u) * 0xFF51AFD7ED558CCDu >> 32) & (room - 1);
        for (; table[place]; place = (place + 1) & (room - 1)) {
            Operation *other = &operations[table[place] - 1];
            if (other->key == o.key && other->version == o.version) break;
        }
        if (table[place]) continue;
        operations[kept++] = o;
        table[place] = (uint32_t)kept;
    }
    PyMem_Free(table);
    *count = kept;
    return 0;
}

/* How the results of a statement are read. It is an extractor: reader(observation, sink). */

typedef struct { /* what a column of a result has to be; names may have changed hands since the catalog was read */
    int at;
    unsigned int table;
    int column;
    unsigned int type;
} Source;

typedef struct {
    KeyNumbers *numbers;
    Source sources[KEY_COLUMNS_MAX + 1]; /* of the key, and of the version */
    int source_count;
    int key_columns[KEY_COLUMNS_MAX];
    int key_count;
    int version_column; /* of what a READ saw, or others replaced; -1 if there is none */
    uint8_t kind;
    uint8_t distinct; /* each pair of key and version counts once */
} Step;

typedef struct {
    PyObject_HEAD
    Step *steps; /* one for each table */
    int step_count;
    uint32_t statement;
    PyObject *otherwise; /* called instead for a result that is not psycopg's own */
    Py_buffer counts;    /* of statements; uint64 */
    Py_ssize_t *places;  /* which of them count this one */
    Py_ssize_t place_count;
} Reader;

#define ANTICIPATED_MAX 64 /* rows; more than a processor fetches at once */

/* Have the processor fetch what will be looked up for the rows of a result. The table of names is larger than its
   caches; to wait for each place in it alone takes longer than all else that is done for a row. */
static void anticipate(const Step *step, pg_value *const *rows, int row_count) {
    if (step->numbers->prefix == Py_None) return;
    KeyNames *names = (KeyNames *)step->numbers->make;
    Py_ssize_t prefix_length;
    const char *prefix = PyUnicode_AsUTF8AndSize(step->numbers->prefix, &prefix_length);
    if (!prefix) PyErr_Clear();
    if (!prefix || prefix_length > HASHED_MAX || !names->room) return;
    char name[HASHED_MAX];
    memcpy(name, prefix, (size_t)prefix_length);
    for (int row = 0; row < row_count && row < ANTICIPATED_MAX; row++) {
        size_t length = (size_t)prefix_length;
        for (int i = 0; i < step->key_count && length < HASHED_MAX; i++) {
            if (i) name[length++] = ',';
            const pg_value *value = &rows[row][step->key_columns[i]];
            size_t size = value->length < 0 ? 0 : (size_t)value->length;
            if (length + size <= HASHED_MAX) memcpy(name + length, value->bytes, size);
            length += size;
        }
        if (!length || length > HASHED_MAX) continue;
        __builtin_prefetch(&names->known[hash_short(name, length) & (names->room - 1)]);
    }
}

/* Add an operation for each row. Rows without a key are passed over. If it fails nothing is added. */
static int take_step(Columns *columns, const Step *step, pg_value *const *rows, int row_count, int column_count,
                     uint64_t write_id, uint32_t statement) {
    int most = step->version_column;
    for (int i = 0; i < step->key_count; i++)
        if (step->key_columns[i] > most) most = step->key_columns[i];
    if (most >= column_count) {
        PyErr_SetString(PyExc_ValueError, "the result has no such column");
        return -1;
    }
    if (row_count > 1) anticipate(step, rows, row_count);
    char on_stack[512], *packed = on_stack;
    size_t room = sizeof on_stack, added = 0;
    for (int row = 0; row < row_count; row++) {
        size_t length = 0;
        int i;
        for (i = 0; i < step->key_count; i++) {
            const pg_value *value = &rows[row][step->key_columns[i]];
            if (value->length < 0) break; /* an outer join found nothing */
            uint32_t size = (uint32_t)value->length;
            if (length + sizeof size + size > room) {
                size_t more = 2 * (length + sizeof size + size);
                char *larger = PyMem_Malloc(more);
                if (!larger) {
                    PyErr_NoMemory();
                    goto failed;
                }
                memcpy(larger, packed, length);
                if (packed != on_stack) PyMem_Free(packed);
                packed = larger;
                room = more;
            }
            memcpy(packed + length, &size, sizeof size);
            memcpy(packed + length + sizeof size, value->bytes, size);
            length += sizeof size + size;
        }
        if (i < step->key_count) continue;
        uint64_t key, version = 0;
        int found = number_of(step->numbers, packed, length, step->key_count, &key);
        if (found < 0) goto failed;
        if (!found) continue;
        if (step->version_column >= 0 && version_in(&rows[row][step->version_column], &version)) goto failed;
        columns->count += added;
        Operation *operation = add_operations(columns, 1);
        columns->count -= added;
        if (!operation) goto failed;
        int replaces = HAS_PREVIOUS(step->kind), reads = step->kind == READ;
        *operation = (Operation){key, reads ? version : write_id, replaces ? version : 0, statement, step->kind};
        added++;
    }
    if (step->distinct && added > 1 && without_repetition(columns->operations + columns->count, &added)) goto failed;
    columns->count += added;
    if (packed != on_stack) PyMem_Free(packed);
    return 0;
failed:
    if (packed != on_stack) PyMem_Free(packed);
    return -1;
}

/* Whether the columns of a result are those that a step was made for. */
static int has_sources(const pg_result *result, int column_count, const Step *step) {
    for (int i = 0; i < step->source_count; i++) {
        const Source *source = &step->sources[i];
        if (source->at >= column_count) return 0;
        const pg_column *column = &result->columns[source->at];
        if (column->table != source->table || column->column != source->column || column->type != source->type) return 0;
    }
    return 1;
}

/* Read the observation (reader, plan, layout, result, write id, ...) into `columns`. 0: done. 1: it has to be read
   otherwise. -1: an exception is set. If it is not done nothing is added. */
static int read_observation(Reader *self, PyObject *observation, Columns *columns) {
    if (!PyTuple_CheckExact(observation) || PyTuple_GET_SIZE(observation) < 5 || !result_type) return 1;
    PyObject *given = PyTuple_GET_ITEM(observation, 3);
    Answer *answer = Py_IS_TYPE(given, &AnswerType) ? (Answer *)given : NULL;
    if (!answer && !Py_IS_TYPE(given, result_type)) return 1;
    uint64_t write_id;
    if (number_in(PyTuple_GET_ITEM(observation, 4), VERSION_MAX, &write_id)) return -1;
    const pg_result *result = result_in(answer ? answer->result : given);
    if (!result) return -1;
    int row_count = answer ? answer->row_count : result->row_count;
    int column_count = answer ? answer->column_count : result->column_count;
    if (column_count && result->columns[0].format) return 1; /* the bytes of its keys are others */
    for (int i = 0; i < self->step_count; i++)
        if (!has_sources(result, column_count, &self->steps[i])) return 1;
    size_t count = columns->count;
    for (int i = 0; i < self->step_count; i++) {
        if (take_step(columns, &self->steps[i], result->rows, row_count, column_count, write_id, self->statement)) {
            columns->count = count;
            return -1;
        }
    }
    uint64_t *counts = self->counts.buf;
    for (Py_ssize_t i = 0; i < self->place_count; i++) counts[self->places[i]]++;
    return 0;
}

static PyTypeObject ReaderType;

static int reader_traverse(Reader *self, visitproc visit, void *arg) {
    for (int i = 0; i < self->step_count; i++) Py_VISIT(self->steps[i].numbers);
    Py_VISIT(self->otherwise);
    return 0;
}

static int reader_forget(Reader *self) {
    int count = self->step_count;
    self->step_count = 0; /* nobody can call it any more */
    for (int i = 0; i < count; i++) Py_CLEAR(self->steps[i].numbers);
    Py_CLEAR(self->otherwise);
    return 0;
}

static void reader_dealloc(Reader *self) {
    PyObject_GC_UnTrack(self);
    reader_forget(self);
    PyMem_Free(self->steps);
    PyMem_Free(self->places);
    PyBuffer_Release(&self->counts);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Reader(steps, statement, counts, places, otherwise); a step: numbers, key columns, version column, kind, distinct, sources. */
static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *steps, *places, *counts, *otherwise;
    unsigned int statement;
    if (!PyArg_ParseTuple(args, "O!IOO!O:Reader", &PyTuple_Type, &steps, &statement, &counts, &PyTuple_Type, &places,
                          &otherwise))
        return NULL;
    Reader *self = (Reader *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->statement = statement;
    self->otherwise = Py_NewRef(otherwise);
    if (PyObject_GetBuffer(counts, &self->counts, PyBUF_WRITABLE)) goto failed;
    self->place_count = PyTuple_GET_SIZE(places);
    self->places = PyMem_Calloc((size_t)self->place_count + 1, sizeof *self->places);
    self->steps = PyMem_Calloc((size_t)PyTuple_GET_SIZE(steps) + 1, sizeof *self->steps);
    if (!self->places || !self->steps) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t i = 0; i < self->place_count; i++) {
        self->places[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i));
        if (self->places[i] < 0 || self->places[i] >= self->counts.len / 8) goto wrong;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); i++) {
        Step *step = &self->steps[i];
        PyObject *numbers, *key_columns;
        PyObject *sources;
        int kind, distinct;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(steps, i), "O!O!iipO!", &KeyNumbersType, &numbers, &PyTuple_Type,
                              &key_columns, &step->version_column, &kind, &distinct, &PyTuple_Type, &sources))
            goto failed;
        step->source_count = (int)PyTuple_GET_SIZE(sources);
        if (step->source_count > KEY_COLUMNS_MAX + 1) goto wrong;
        for (int j = 0; j < step->source_count; j++) {
            Source *source = &step->sources[j];
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sources, j), "iIiI", &source->at, &source->table, &source->column,
                                  &source->type))
                goto failed;
            if (source->at < 0) goto wrong;
        }
        step->key_count = (int)PyTuple_GET_SIZE(key_columns);
        if (kind < 0 || kind >= KINDS || step->key_count < 1 || step->key_count > KEY_COLUMNS_MAX) goto wrong;
        for (int j = 0; j < step->key_count; j++) {
            step->key_columns[j] = (int)PyLong_AsLong(PyTuple_GET_ITEM(key_columns, j));
            if (step->key_columns[j] < 0) goto wrong;
        }
        step->kind = (uint8_t)kind;
        step->distinct = (uint8_t)distinct;
        step->numbers = (KeyNumbers *)Py_NewRef(numbers);
        self->step_count++;
    }
    return (PyObject *)self;
wrong:
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such place, kind or column");
failed:
    Py_DECREF(self);
    return NULL;
}

static PyObject *reader_call(Reader *self, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *observation, *sink;
    if (!PyArg_ParseTuple(args, "OO:Reader", &observation, &sink)) return NULL;
    PyObject *columns = PyObject_GetAttrString(sink, "columns");
    if (!columns) return NULL;
    if (!Py_IS_TYPE(columns, &ColumnsType)) {
        Py_DECREF(columns);
        return PyErr_Format(PyExc_TypeError, "the sink has no columns");
    }
    int left = read_observation(self, observation, (Columns *)columns);
    Py_DECREF(columns);
    if (left > 0) return PyObject_Call(self->otherwise, args, NULL);
    if (left < 0) return NULL;
    Py_RETURN_NONE;
}

static PyTypeObject ReaderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mussurana.collector._columns.Reader",
    .tp_basicsize = sizeof(Reader),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Reads the results of a statement.",
    .tp_traverse = (traverseproc)reader_traverse,
    .tp_clear = (inquiry)reader_forget,
    .tp_new = reader_new,
    .tp_dealloc = (destructor)reader_dealloc,
    .tp_call = (ternaryfunc)reader_call,
};

/* add_read(observations, first) -> int: add what the observations from the first one on say, as long as each is that of
   a reader and can be read. Returns the place of the next one. */
static PyObject *columns_add_read(Columns *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 2 || !PyList_CheckExact(args[0]))
        return PyErr_Format(PyExc_TypeError, "add_read takes a list and a place");
    Py_ssize_t place = PyLong_AsSsize_t(args[1]);
    if (place < 0) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no such place");
    for (; place < PyList_GET_SIZE(args[0]); place++) { /* a key that is new lets others run */
        PyObject *observation = Py_NewRef(PyList_GET_ITEM(args[0], place));
        int is_tuple = PyTuple_CheckExact(observation) && PyTuple_GET_SIZE(observation);
        PyObject *extract = is_tuple ? PyTuple_GET_ITEM(observation, 0) : NULL;
        int is_reader = extract && Py_IS_TYPE(extract, &ReaderType);
        int done = is_reader && !read_observation((Reader *)extract, observation, self);
        Py_DECREF(observation);
        if (!done) {
            PyErr_Clear(); /* whoever asks this one again gets to see it */
            break;
        }
    }
    return PyLong_FromSsize_t(place);
}

static PyMethodDef columns_methods[] = {
    {"tell", (PyCFunction)(void (*)(void))columns_tell, METH_FASTCALL, "Add an operation."},
    {"extend", (PyCFunction)columns_extend, METH_O, "Add all operations of others."},
    {"cut", (PyCFunction)columns_cut, METH_O, "Only the first ones stay."},
    {"rows", (PyCFunction)columns_rows, METH_NOARGS, "The operations, a tuple each."},
    {"content", (PyCFunction)columns_content, METH_NOARGS, "The columns as a fragment has them."},
    {"add_read", (PyCFunction)(void (*)(void))columns_add_read, METH_FASTCALL, "Add what readers read."},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods columns_sequence = {.sq_length = (lenfunc)columns_length};

static PyTypeObject ColumnsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mussurana.collector._columns.Columns",
    .tp_basicsize = sizeof(Columns),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Columns over operations, in the order in which they happened.",
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)columns_dealloc,
    .tp_methods = columns_methods,
    .tp_as_sequence = &columns_sequence,
};

/* Transactions that have ended, with their operations. One thread may add while another one takes what is there: each
   method is one step, since nothing in it lets go of the interpreter's lock. */

enum { BEGIN, BEGUN, COMMIT, COMMITTED, TIMES };

typedef struct {
    int64_t times[TIMES];
    uint32_t session, op_count;
    uint8_t status, isolation;
} Ended;

typedef struct {
    PyObject_HEAD
    Columns *operations;
    Ended *txns;
    size_t count, room;
    uint64_t *epochs; /* of those that are fences */
    size_t epoch_count, epoch_room;
} Batch;

#define FENCE_KEY 0

/* Make room for so many more, in an array of things of this size. */
static int grow(void *array, size_t *room, size_t needed, size_t size) {
    if (needed <= *room) return 0;
    size_t larger = needed + needed / 2 + 8;
    void *moved = PyMem_Realloc(*(void **)array, larger * size);
    if (!moved) {
        PyErr_NoMemory();
        return -1;
    }
    *(void **)array = moved;
    *room = larger;
    return 0;
}

static PyObject *batch_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    Batch *self = (Batch *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->operations = (Columns *)ColumnsType.tp_alloc(&ColumnsType, 0);
    if (!self->operations) Py_CLEAR(self);
    return (PyObject *)self;
}

static void batch_dealloc(Batch *self) {
    Py_XDECREF(self->operations);
    PyMem_Free(self->txns);
    PyMem_Free(self->epochs);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t batch_length(Batch *self) { return (Py_ssize_t)self->count; }

/* Room for more, in all columns. After it nothing can fail. */
static int batch_grow(Batch *self, size_t txns, size_t operations, size_t epochs) {
    return grow(&self->txns, &self->room, self->count + txns, sizeof *self->txns) ||
           grow(&self->epochs, &self->epoch_room, self->epoch_count + epochs, sizeof *self->epochs) ||
           !add_operations(self->operations, operations);
}

/* Pre: there is room. */
static void append_operations(Columns *to, const Columns *from) {
    if (from->count) memcpy(to->operations + to->count, from->operations, from->count * sizeof *from->operations);
    to->count += from->count;
}

/* add(session, status, isolation, begin, begun, commit, committed, epoch, operations) */
static PyObject *batch_add(Batch *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 9 || !Py_IS_TYPE(args[8], &ColumnsType))
        return PyErr_Format(PyExc_TypeError, "add takes eight numbers and columns");
    uint64_t session, status, isolation, epoch;
    Ended txn;
    if (number_in(args[0], UINT32_MAX, &session) || number_in(args[1], UINT8_MAX, &status) ||
        number_in(args[2], UINT8_MAX, &isolation) || number_in(args[7], UINT64_MAX, &epoch))
        return NULL;
    for (int i = 0; i < TIMES; i++) {
        txn.times[i] = PyLong_AsLongLong(args[3 + i]);
        if (txn.times[i] == -1 && PyErr_Occurred()) return NULL;
    }
    Columns *operations = (Columns *)args[8];
    if (operations->count > UINT32_MAX) return PyErr_Format(PyExc_OverflowError, "too many operations");
    txn.session = (uint32_t)session;
    txn.op_count = (uint32_t)operations->count;
    txn.status = (uint8_t)status;
    txn.isolation = (uint8_t)isolation;
    if (batch_grow(self, 1, operations->count, 1)) return NULL;
    if (operations->count == 1 && operations->operations->key == FENCE_KEY) self->epochs[self->epoch_count++] = epoch;
    append_operations(self->operations, operations);
    self->txns[self->count++] = txn;
    Py_RETURN_NONE;
}

static PyTypeObject BatchType;

static PyObject *batch_absorb(Batch *self, PyObject *given) {
    if (!Py_IS_TYPE(given, &BatchType) || given == (PyObject *)self)
        return PyErr_Format(PyExc_TypeError, "not another batch: %R", given);
    Batch *other = (Batch *)given;
    if (batch_grow(self, other->count, other->operations->count, other->epoch_count)) return NULL;
    if (other->count) memcpy(self->txns + self->count, other->txns, other->count * sizeof *other->txns);
    if (other->epoch_count)
        memcpy(self->epochs + self->epoch_count, other->epochs, other->epoch_count * sizeof *other->epochs);
    append_operations(self->operations, other->operations);
    self->count += other->count;
    self->epoch_count += other->epoch_count;
    other->count = other->epoch_count = other->operations->count = 0;
    Py_RETURN_NONE;
}

/* content() -> session, status, four times, op_count, isolation, epoch: columns as a fragment has them. */
static PyObject *batch_content(Batch *self, PyObject *Py_UNUSED(ignored)) {
    size_t count = self->count;
    size_t wide = 8 * count, sizes[] = {4 * count, count, wide, wide, wide, wide, 4 * count, count, 8 * self->epoch_count};
    enum { SESSION, STATUS, TIME, OP_COUNT = TIME + TIMES, ISOLATION, EPOCH, COLUMNS };
    char *to[COLUMNS];
    PyObject *content = empty_columns(sizes, COLUMNS, to);
    if (!content) return NULL;
    for (size_t i = 0; i < count; i++) {
        Ended *txn = &self->txns[i];
        put(to[SESSION] + 4 * i, txn->session, 4);
        to[STATUS][i] = (char)txn->status;
        for (int j = 0; j < TIMES; j++) put(to[TIME + j] + 8 * i, (uint64_t)txn->times[j], 8);
        put(to[OP_COUNT] + 4 * i, txn->op_count, 4);
        to[ISOLATION][i] = (char)txn->isolation;
    }
    for (size_t i = 0; i < self->epoch_count; i++) put(to[EPOCH] + 8 * i, self->epochs[i], 8);
    return content;
}

static PyObject *batch_operations(Batch *self, void *Py_UNUSED(closure)) {
    return Py_NewRef((PyObject *)self->operations);
}

static PyMethodDef batch_methods[] = {
    {"add", (PyCFunction)(void (*)(void))batch_add, METH_FASTCALL, "Add a transaction."},
    {"absorb", (PyCFunction)batch_absorb, METH_O, "Take all that another one has."},
    {"content", (PyCFunction)batch_content, METH_NOARGS, "The columns of transactions as a fragment has them."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef batch_attributes[] = {
    {"operations", (getter)batch_operations, NULL, "The operations of all of them.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PySequenceMethods batch_sequence = {.sq_length = (lenfunc)batch_length};

static PyTypeObject BatchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "mussurana.collector._columns.Batch",
    .tp_basicsize = sizeof(Batch),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Transactions that have ended, with their operations.",
    .tp_new = batch_new,
    .tp_dealloc = (destructor)batch_dealloc,
    .tp_methods = batch_methods,
    .tp_getset = batch_attributes,
    .tp_as_sequence = &batch_sequence,
};

/* Whether the fields of libpq's results are where pg_result has them: make one, and compare. */
static int is_as_declared(void *library) {
    int (*version)(void), (*set_columns)(pg_result *, int, pg_column *), (*nfields)(const pg_result *);
    int (*set_value)(pg_result *, int, int, char *, int), (*ntuples)(const pg_result *), (*status)(const pg_result *);
    pg_result *(*make)(void *, int);
    void (*clear)(pg_result *);
    *(void **)&version = dlsym(library, "PQlibVersion");
    *(void **)&make = dlsym(library, "PQmakeEmptyPGresult");
    *(void **)&clear = dlsym(library, "PQclear");
    *(void **)&set_columns = dlsym(library, "PQsetResultAttrs");
    *(void **)&set_value = dlsym(library, "PQsetvalue");
    *(void **)&nfields = dlsym(library, "PQnfields");
    *(void **)&ntuples = dlsym(library, "PQntuples");
    *(void **)&status = dlsym(library, "PQresultStatus");
    if (!version || !make || !clear || !set_columns || !set_value || !nfields || !ntuples || !status) return 0;
    if (version() > LIBPQ_VERSION_MAX) return 0;
    pg_column columns[] = {{"one", 1, 2, 0, 20, 8, -1}, {"two", 1, 3, 0, 25, -1, 7}, {"three", 0, 0, 0, 23, 4, -1}};
    pg_result *result = make(NULL, TUPLES_OK);
    if (!result) return 0;
    int good = set_columns(result, 3, columns) && set_value(result, 0, 0, "x", 1) && set_value(result, 0, 1, NULL, -1) &&
               set_value(result, 0, 2, "", 0) && set_value(result, 1, 0, "last", 4) && nfields(result) == 3 &&
               ntuples(result) == 2 && status(result) == TUPLES_OK;
    good = good && result->row_count == 2 && result->column_count == 3 && result->status == TUPLES_OK;
    good = good && result->columns[1].type == 25 && result->columns[2].type == 23 && !result->columns[2].format;
    good = good && result->rows[0][0].length == 1 && !memcmp(result->rows[0][0].bytes, "x", 1) &&
           result->rows[0][1].length == -1 && !result->rows[0][2].length && result->rows[1][0].length == 4 &&
           !memcmp(result->rows[1][0].bytes, "last", 4);
    if (good) {
        result->column_count = 1;
        good = nfields(result) == 1;
        result->column_count = result->row_count = 0;
        result->status = COMMAND_OK;
        good = good && !nfields(result) && !ntuples(result) && status(result) == COMMAND_OK;
    }
    clear(result);
    return good;
}

/* bind(path of psycopg's extension module, its PGresult) -> bool: whether results can be read from now on. */
static PyObject *bind(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *path;
    PyTypeObject *type;
    if (!PyArg_ParseTuple(args, "sO!", &path, &PyType_Type, &type)) return NULL;
    if (dlsym(RTLD_DEFAULT, "PQgetvalue")) Py_RETURN_FALSE;
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) Py_RETURN_FALSE;
    if (!is_as_declared(library)) {
        dlclose(library);
        Py_RETURN_FALSE;
    }
    result_type = (PyTypeObject *)Py_NewRef((PyObject *)type); /* and the library stays open, for ever */
    Py_RETURN_TRUE;
}

static PyMethodDef module_methods[] = {
    {"bind", bind, METH_VARARGS, "Find libpq from psycopg's extension module."},
    {"narrow", (PyCFunction)(void (*)(void))narrow, METH_FASTCALL, "Leave the application some columns of a result."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mussurana.collector._columns",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__columns(void) {
    pgresult_ptr = PyUnicode_InternFromString("pgresult_ptr");
    if (!pgresult_ptr || PyType_Ready(&KeyNamesType) < 0 || PyType_Ready(&KeyNumbersType) < 0 ||
        PyType_Ready(&ColumnsType) < 0 || PyType_Ready(&ReaderType) < 0 || PyType_Ready(&BatchType) < 0 ||
        PyType_Ready(&AnswerType) < 0)
        return NULL;
    seed = (uint64_t)PyObject_Hash(pgresult_ptr) | 1;
    PyObject *made = PyModule_Create(&module);
    if (made && (PyModule_AddObjectRef(made, "KeyNames", (PyObject *)&KeyNamesType) < 0 ||
                 PyModule_AddObjectRef(made, "KeyNumbers", (PyObject *)&KeyNumbersType) < 0 ||
                 PyModule_AddObjectRef(made, "Columns", (PyObject *)&ColumnsType) < 0 ||
                 PyModule_AddObjectRef(made, "Reader", (PyObject *)&ReaderType) < 0 ||
                 PyModule_AddObjectRef(made, "Batch", (PyObject *)&BatchType) < 0))
        Py_CLEAR(made);
    return made;
}
